#include "model-server/model/kv_parts.h"
#include <string.h>

/* The single layer of a cache without layers. */
enum { LEAST_HEAD_DIM = 16 };
static const struct kv_layer least = {1, LEAST_HEAD_DIM, LEAST_HEAD_DIM, false};

/* Keeps only the layers of this stage: [first, end) of all. */
static void keep_stage(struct decoder *d, uint32_t first, uint32_t end)
{
    const uint32_t n = end - first;
    memmove(d->kv_layers, d->kv_layers + first, n * sizeof(*d->kv_layers));
    memmove(d->kv_window, d->kv_window + first, n * sizeof(*d->kv_window));
    for (uint32_t i = 0; i < d->stage.n; i++) {
        uint32_t *at = &d->kv_at[d->stage.first + i], *index = &d->index_at[d->stage.first + i];
        *at = *at >= first ? *at - first : 0; /* 0: it keeps nothing */
        *index = *index >= first ? *index - first : 0;
    }
    d->n_kv_layers = n;
}

static bool same(const struct kv_layer *a, const struct kv_layer *b)
{
    return a->n_heads == b->n_heads && a->k_dim == b->k_dim && a->v_dim == b->v_dim &&
           a->latent == b->latent && a->index_dim == b->index_dim && a->every == b->every;
}

/* An encoder's layer is done before the next one begins: layers that cache the same sizes share one
 * layer of the cache. */
static void share_sizes(struct decoder *d)
{
    uint32_t of[SPEC_MAX_LAYERS], n = 0;
    for (uint32_t i = 0; i < d->n_kv_layers; i++) {
        uint32_t k = 0;
        while (k < n && !same(&d->kv_layers[k], &d->kv_layers[i]))
            k++;
        if (k == n)
            d->kv_layers[n++] = d->kv_layers[i];
        of[i] = k;
    }
    for (uint32_t i = 0; n && i < d->spec.n_layers; i++)
        d->kv_at[i] = of[d->kv_at[i]];
    d->n_kv_layers = n;
}

void kv_parts_plan(struct decoder *d, const struct sublayer_ops *const *mixers)
{
    uint32_t first = 0, end = 0;
    for (uint32_t i = 0; i < spec_all_layers(&d->spec); i++) {
        const struct layer_spec *s = &d->spec.layers[i];
        const struct sublayer_ops *ops = s->mixer == MIXER_NONE ? NULL : mixers[s->mixer];
        /* A draft head's rows have no blocks of windows. Its attention has the window anyway. */
        const uint32_t window = i >= d->spec.n_layers ? 0 : s->chunk ? s->chunk : s->window;
        first = i == d->stage.first ? d->n_kv_layers : first;
        if (s->kv_of) {
            uint32_t *most = &d->kv_window[d->kv_at[i] = d->kv_at[s->kv_of - 1]];
            *most = !*most || !window ? 0 : *most > window ? *most : window;
            if (ops && ops->kv && ops->kv(d, i, &d->kv_layers[d->n_kv_layers]))
                d->index_at[i] = d->n_kv_layers++;
        } else if (ops && ops->kv && ops->kv(d, i, &d->kv_layers[d->n_kv_layers])) {
            d->kv_window[d->n_kv_layers] = window;
            d->kv_at[i] = d->n_kv_layers++;
        }
        end = i < d->stage.first + d->stage.n ? d->n_kv_layers : end;
    }
    for (uint32_t i = 0; i < d->n_kv_layers; i++)
        if (d->kv_window[i] > d->kv_window_most)
            d->kv_window_most = d->kv_window[i];
    if (d->stages)
        keep_stage(d, first, end);
    if (d->encodes)
        share_sizes(d);
    kv_parts_number(d, false);
    if (d->encodes && !d->n_kv_layers)
        d->kv_layers[0] = least;
}

void kv_parts_number(struct decoder *d, bool apart)
{
    uint32_t n = 0, windows = 0;
    for (uint32_t i = 0; i < d->n_kv_layers; i++)
        d->kv_in[i] = apart && d->kv_window[i] ? windows++ : n++;
}

/* `layers` has capacity for all of them. */
static struct kv_desc describe(const struct decoder *d, enum kv_part part, uint32_t n_blocks,
                               uint32_t block_size, enum kv_dtype dtype, struct kv_layer *layers)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_kv_layers; i++)
        if (part == KV_ALL || (part == KV_WINDOWS) == (d->kv_window[i] > 0))
            layers[n++] = d->kv_layers[i];
    return (struct kv_desc){.n_layers = n ? n : 1,
                            .n_blocks = n_blocks,
                            .block_size = block_size,
                            .dtype = dtype,
                            .layers = n ? layers : &least,
                            .rounds = d->kv_rounds,
                            .windows = part == KV_WINDOWS};
}

uint64_t kv_part_bytes(const struct decoder *d, enum kv_part part, uint32_t block_size,
                       enum kv_dtype dtype)
{
    struct kv_layer layers[SPEC_MAX_LAYERS];
    const struct kv_desc k = describe(d, part, 1, block_size, dtype, layers);
    return d->ops->kv_block_bytes(&k);
}

struct kv_cache *kv_part_new(struct decoder *d, enum kv_part part, uint32_t n_blocks,
                             uint32_t block_size, enum kv_dtype dtype, struct err *e)
{
    struct kv_layer layers[SPEC_MAX_LAYERS];
    const struct kv_desc k = describe(d, part, n_blocks, block_size, dtype, layers);
    return d->ops->kv_new(d->dev, &k, e);
}

void kv_parts_free(struct decoder *d)
{
    struct kv_cache **both[] = {&d->kv, &d->windows};
    for (int i = 0; i < 2; i++) {
        if (*both[i])
            d->ops->kv_free(d->dev, *both[i]);
        *both[i] = NULL;
    }
}
