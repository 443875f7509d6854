/* tower_resample.c - a perceiver resampler (Flamingo, arXiv 2204.14198; Idefics 2, 2405.02246): a
 * few learned rows, the latents, attend to the patches of a crop and to each other.
 *
 * First the keys and values of the patches are computed for all layers, to a separate cache. Then
 * the latents go through the layers in one step. */
#include "model-server/backend/numbers.h"
#include "model-server/encoder/tower_impl.h"
#include "model-server/model/loader/loader.h"
#include <math.h>
#include <stdlib.h>

enum { BLOCK = 16, PATCH_ROWS = 512 }; /* rows of patches that are computed at once */

/* Elements of a row of q, and of a row of k or v. */
static uint32_t q_width(const struct encoder_resample *s) { return s->heads * s->head_dim; }
static uint32_t kv_width(const struct encoder_resample *s) { return s->kv_heads * s->head_dim; }

static uint32_t blocks_of(uint32_t rows) { return (rows + BLOCK - 1) / BLOCK; }

/* ---------------------------------------------------------------- loading */

static struct weight *stacked(struct loader *l, int layer, enum role a, enum role b, uint32_t rows)
{
    const uint32_t width = ((struct tower *)l->d->front.arg)->spec.width;
    struct mat_part parts[2];
    parts[0] = loader_part(l, a, layer, NO_EXPERT, false, rows, width);
    parts[1] = loader_part(l, b, layer, NO_EXPERT, false, rows, width);
    return loader_pack(l, parts, 2, l->d->dtype, QUANT_NONE);
}

static struct weight *matrix(struct loader *l, int layer, enum role role, uint32_t rows,
                             uint32_t cols)
{
    struct mat_part p = loader_part(l, role, layer, NO_EXPERT, false, rows, cols);
    return loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
}

static void load_layer(struct loader *l, struct tower *t, int layer)
{
    const struct encoder_resample *s = &t->spec.resample;
    struct tower_sampler *m = &t->resample.layer[layer];
    const uint32_t width = t->spec.width;
    m->latent_norm = loader_weight_vector(l, W_SAMPLE_LATENT_NORM, layer, width);
    m->context_norm = loader_weight_vector(l, W_SAMPLE_CONTEXT_NORM, layer, width);
    m->mlp_norm = loader_weight_vector(l, W_SAMPLE_MLP_NORM, layer, width);
    m->q = matrix(l, layer, W_SAMPLE_Q, q_width(s), width);
    m->kv = stacked(l, layer, W_SAMPLE_K, W_SAMPLE_V, kv_width(s));
    m->o = matrix(l, layer, W_SAMPLE_O, width, q_width(s));
    m->gate_up = stacked(l, layer, W_SAMPLE_GATE, W_SAMPLE_UP, 4 * width);
    m->down = matrix(l, layer, W_SAMPLE_DOWN, width, 4 * width);
}

void tower_resample_load(struct loader *l, struct tower *t)
{
    const uint32_t n = t->spec.resample.latents, width = t->spec.width;
    const struct mat_part p = loader_table(l, W_SAMPLE_LATENTS, NO_LAYER, "", n, width);
    float *v = l->failed ? NULL : malloc((size_t)n * width * sizeof(*v));
    if (!v && !l->failed)
        loader_nomem(l);
    for (int64_t i = 0; v && i < (int64_t)n * width; i++)
        v[i] = p.data ? number_at(p.data, p.dtype, i) : 0;
    t->resample.latents = v;
    loader_drop(l);
    t->resample.norm = loader_weight_vector(l, W_SAMPLE_NORM, NO_LAYER, width);
    for (uint32_t i = 0; i < t->spec.resample.depth; i++)
        load_layer(l, t, (int)i);
}

static void free_memory(struct tower *t)
{
    struct tower_resample *r = &t->resample;
    if (r->kv)
        t->d.ops->kv_free(t->d.dev, r->kv);
    t->d.ops->free(t->d.dev, r->device);
    free(r->zeros), free(r->places), free(r->blocks);
    r->kv = NULL;
    r->device = NULL;
    r->zeros = r->places = r->blocks = NULL;
    r->cap = 0;
}

void tower_resample_free(struct tower *t)
{
    const struct decoder *d = &t->d;
    for (int i = 0; i < ENCODER_MAX_SAMPLERS; i++) {
        struct tower_sampler *m = &t->resample.layer[i];
        d->ops->free(d->dev, m->latent_norm);
        d->ops->free(d->dev, m->context_norm);
        d->ops->free(d->dev, m->mlp_norm);
        layer_free_weight(&t->d, m->q);
        layer_free_weight(&t->d, m->kv);
        layer_free_weight(&t->d, m->o);
        layer_free_weight(&t->d, m->gate_up);
        layer_free_weight(&t->d, m->down);
    }
    d->ops->free(d->dev, t->resample.norm);
    free(t->resample.latents);
    free_memory(t);
}

/* ---------------------------------------------------------------- memory */

/* Lays out device memory, each area on a 64-byte boundary. Returns its size in floats. `base` NULL:
 * the size only. */
static size_t layout(struct tower *t, float *base)
{
    const struct encoder_resample *s = &t->spec.resample;
    struct tower_resample *r = &t->resample;
    const size_t width = t->spec.width, n = s->latents, most = n > PATCH_ROWS ? n : PATCH_ROWS;
    const size_t sizes[] = {n * width,      most * width,  2 * most * kv_width(s), n * q_width(s),
                            n * q_width(s), 8 * n * width, 4 * n * width};
    float **const areas[] = {&r->rows, &r->normed, &r->kv_rows, &r->q,
                             &r->att,  &r->mlp,    &r->middle};
    size_t at = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        *areas[i] = base ? base + at : NULL;
        at += (sizes[i] + 15) & ~(size_t)15;
    }
    return at;
}

static struct kv_desc describe(const struct tower *t, uint32_t rows)
{
    const struct encoder_resample *s = &t->spec.resample;
    return (struct kv_desc){
        .n_layers = s->depth,
        .n_blocks = blocks_of(rows),
        .block_size = BLOCK,
        .dtype = KV_F32,
        .each = {.n_heads = s->kv_heads, .k_dim = s->head_dim, .v_dim = s->head_dim}};
}

uint64_t tower_resample_bytes(const struct tower *t, uint32_t patches)
{
    struct tower sketch = *t; /* layout() sets pointers */
    const uint32_t rows = patches + t->spec.resample.latents;
    if (!t->spec.resample.latents)
        return 0;
    const struct kv_desc k = describe(t, rows);
    return layout(&sketch, NULL) * sizeof(float) + k.n_blocks * t->d.ops->kv_block_bytes(&k);
}

int tower_resample_reserve(struct tower *t, uint32_t patches, struct err *e)
{
    struct tower_resample *r = &t->resample;
    const uint32_t rows = patches + t->spec.resample.latents;
    if (rows <= r->cap)
        return 0;
    free_memory(t);
    const struct kv_desc k = describe(t, rows);
    r->zeros = calloc(rows, sizeof(*r->zeros));
    r->places = malloc(rows * sizeof(*r->places));
    r->blocks = malloc(k.n_blocks * sizeof(*r->blocks));
    if (!r->zeros || !r->places || !r->blocks)
        return err_nomem(e);
    if (!(r->kv = t->d.ops->kv_new(t->d.dev, &k, e)) ||
        !(r->device = t->d.ops->alloc(t->d.dev, layout(t, NULL) * sizeof(float), e)))
        return -1;
    layout(t, r->device);
    for (uint32_t i = 0; i < rows; i++)
        r->places[i] = i; /* blocks are consecutive */
    for (uint32_t i = 0; i < k.n_blocks; i++)
        r->blocks[i] = i;
    r->cap = rows;
    return 0;
}

/* ---------------------------------------------------------------- steps */

/* A batch of rows [first, first + n) of the patches followed by the latents. */
static struct ragged batch(const struct tower_resample *r, const struct span *span, uint32_t first,
                           uint32_t n)
{
    return (struct ragged){.n_tokens = n,
                           .n_spans = 1,
                           .ids = r->zeros,
                           .pos = r->places + first,
                           .slots = r->places + first,
                           .spans = span};
}

static void norm(struct tower *t, float *y, const float *x, uint32_t rows, float *weights)
{
    const struct norm p = {.kind = NORM_RMS, .eps = t->spec.resample.eps, .w = weights};
    t->d.ops->norm(t->d.dev, y, x, rows, t->spec.width, &p);
}

/* Computes a layer's keys and values of the rows in r->normed, and stores them. */
static void store(struct tower *t, uint32_t rows, uint32_t layer)
{
    const struct encoder_resample *s = &t->spec.resample;
    struct tower_resample *r = &t->resample;
    t->d.ops->linear(t->d.dev, r->kv_rows, r->normed, rows, r->layer[layer].kv, NULL);
    t->d.ops->rope_kv(t->d.dev, r->kv_rows, r->kv, layer,
                      &(struct rope_kv){.n_kv_heads = s->kv_heads, .head_dim = s->head_dim});
}

static int store_patches(struct tower *t, const float *x, uint32_t first, uint32_t n, struct err *e)
{
    struct tower_resample *r = &t->resample;
    const struct span span = {.n = n, .kv_len = first + n, .blocks = r->blocks};
    const struct ragged b = batch(r, &span, first, n);
    if (t->d.ops->step_begin(t->d.dev, &b, e))
        return -1;
    for (uint32_t i = 0; i < t->spec.resample.depth; i++) {
        norm(t, r->normed, x + (size_t)first * t->spec.width, n, r->layer[i].context_norm);
        store(t, n, i);
    }
    return t->d.ops->step_end(t->d.dev, e);
}

static void layer(struct tower *t, uint32_t i)
{
    const struct encoder_resample *s = &t->spec.resample;
    struct tower_resample *r = &t->resample;
    const struct tower_sampler *m = &r->layer[i];
    const struct backend_ops *ops = t->d.ops;
    const uint32_t n = s->latents, width = t->spec.width;
    const struct norm before_mlp = {.kind = NORM_RMS, .eps = s->eps, .w = m->mlp_norm};
    norm(t, r->normed, r->rows, n, m->latent_norm);
    store(t, n, i);
    ops->linear(t->d.dev, r->q, r->normed, n, m->q, NULL);
    ops->attention(t->d.dev, r->att, r->q, q_width(s), r->kv, i,
                   &(struct attn){.n_heads = s->heads,
                                  .n_kv_heads = s->kv_heads,
                                  .head_dim = s->head_dim,
                                  .scale = 1 / sqrtf((float)s->head_dim),
                                  .both = true});
    ops->linear(t->d.dev, r->middle, r->att, n, m->o, NULL);
    ops->add_norm(t->d.dev, r->normed, r->rows, r->middle, 1, n, width, &before_mlp);
    ops->linear(t->d.dev, r->mlp, r->normed, n, m->gate_up, NULL);
    ops->act_mul(t->d.dev, r->middle, r->mlp, n, 4 * width, s->act);
    ops->linear(t->d.dev, r->normed, r->middle, n, m->down, NULL);
    ops->add_norm(t->d.dev, r->rows, r->rows, r->normed, 1, n, width, NULL);
}

int tower_resample(struct tower *t, const float *patches, uint32_t n, float *out, struct err *e)
{
    const struct backend_ops *ops = t->d.ops;
    const uint32_t latents = t->spec.resample.latents;
    const size_t bytes = (size_t)latents * t->spec.width * sizeof(float);
    struct tower_resample *r = &t->resample;
    if (tower_resample_reserve(t, n, e))
        return -1;
    for (uint32_t at = 0, some; at < n; at += some) {
        some = n - at < PATCH_ROWS ? n - at : PATCH_ROWS;
        if (store_patches(t, patches, at, some, e))
            return -1;
    }
    const struct span span = {.n = latents, .kv_len = n + latents, .blocks = r->blocks};
    const struct ragged b = batch(r, &span, n, latents);
    if (ops->upload(t->d.dev, r->rows, r->latents, bytes, e) || ops->step_begin(t->d.dev, &b, e))
        return -1;
    for (uint32_t i = 0; i < t->spec.resample.depth; i++)
        layer(t, i);
    norm(t, r->rows, r->rows, latents, r->norm);
    return ops->step_end(t->d.dev, e) || ops->download(t->d.dev, out, r->rows, bytes, e) ? -1 : 0;
}
