#include "model-server/model/kv_parts.h"
#include <string.h>

enum { LEAST_HEAD_DIM = 16 }; /* of the layer that a cache of no layers has */

void kv_parts_plan(struct decoder *d, const struct sublayer_ops *const *mixers)
{
    for (uint32_t i = 0; i < spec_all_layers(&d->spec); i++) {
        const struct layer_spec *s = &d->spec.layers[i];
        const struct sublayer_ops *ops = s->mixer == MIXER_NONE ? NULL : mixers[s->mixer];
        const uint32_t window = s->chunk ? s->chunk : s->window;
        if (s->kv_of) {
            uint32_t *most = &d->kv_window[d->kv_at[i] = d->kv_at[s->kv_of - 1]];
            *most = !*most || !window ? 0 : *most > window ? *most : window;
        } else if (ops && ops->kv && ops->kv(d, i, &d->kv_layers[d->n_kv_layers])) {
            d->kv_window[d->n_kv_layers] = window;
            d->kv_at[i] = d->n_kv_layers++;
        }
    }
    kv_parts_number(d, false);
    if (d->encodes) /* one layer of the cache serves all */
        memset(d->kv_at, 0, d->spec.n_layers * sizeof(*d->kv_at));
}

void kv_parts_number(struct decoder *d, bool apart)
{
    uint32_t n = 0, windows = 0;
    for (uint32_t i = 0; i < d->n_kv_layers; i++)
        d->kv_in[i] = apart && d->kv_window[i] ? windows++ : n++;
}

uint32_t kv_parts_window(const struct decoder *d)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < d->n_kv_layers; i++)
        most = d->kv_window[i] > most ? d->kv_window[i] : most;
    return most;
}

/* `layers` has room for all of them. */
static struct kv_desc describe(const struct decoder *d, enum kv_part part, uint32_t n_blocks,
                               uint32_t block_size, enum kv_dtype dtype, struct kv_layer *layers)
{
    static const struct kv_layer least = {1, LEAST_HEAD_DIM, LEAST_HEAD_DIM, false};
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_kv_layers; i++)
        if (part == KV_ALL || (part == KV_WINDOWS) == (d->kv_window[i] > 0))
            layers[n++] = d->kv_layers[i];
    return (struct kv_desc){.n_layers = n ? n : 1,
                            .n_blocks = n_blocks,
                            .block_size = block_size,
                            .dtype = dtype,
                            .layers = n ? layers : &least,
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
