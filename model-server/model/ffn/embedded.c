/* embedded.c - per-layer embeddings (Gemma 4 E2B and E4B, after Gemma 3n): a row of a table by
 * the token's id, and a projection of the main embedding, are added to the residual stream
 * through a gate; EmbeddingGemma 2 has no table. Every rank computes all of it, because it is
 * narrow. */
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"
#include <math.h>
#include <stdlib.h>

struct embedded {
    struct weight *table; /* [vocab, width], or NULL */
    struct weight *proj;  /* [width, hidden] of the usual embedding */
    struct weight *gate;  /* [width, hidden] of the stream */
    struct weight *out;   /* [hidden, width] */
    struct norm norm;     /* [width] behind proj */
};

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    return (void)layer, 3 * d->spec.per_layer;
}

static struct weight *matrix(struct loader *l, struct mat_part p, enum quant quant)
{
    return loader_pack(l, &p, 1, l->d->dtype, quant);
}

/* Columns from `first` on of the table of `all` columns; rows without an own one repeat the first.
 */
static struct weight *table(struct loader *l, uint32_t all, uint32_t first)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->per_layer, own = s->per_layer_vocab ? s->per_layer_vocab : s->vocab;
    struct mat_part p = loader_part(l, W_LAYER_EMBED, NO_LAYER, NO_EXPERT, false, own, all);
    if (own >= s->vocab)
        return matrix(l, loader_cut(p, 0, s->vocab, first, n), QUANT_NONE);
    loader_numbers(l, &p);
    struct mat_part parts[2] = {loader_cut(p, 0, own, first, n), loader_cut(p, 0, 1, first, n)};
    parts[1].rows = s->vocab - own;
    parts[1].row_stride = 0;
    return loader_pack(l, parts, 2, l->d->dtype, QUANT_NONE);
}

static void *load(struct loader *l, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->per_layer, all = n * s->n_layers, first = n * layer;
    struct embedded *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    const struct amount before = l->d->weights;
    y->table = s->per_layer_plain ? NULL : table(l, all, first);
    l->d->tables.bytes += l->d->weights.bytes - before.bytes;
    l->d->tables.elements += l->d->weights.elements - before.elements;
    struct mat_part p =
        loader_part(l, W_LAYER_EMBED_PROJ, NO_LAYER, NO_EXPERT, false, all, s->hidden);
    y->proj = matrix(l, loader_rows(p, first, n), l->d->quant);
    p = loader_part(l, W_LAYER_EMBED_GATE, (int)layer, NO_EXPERT, false, n, s->hidden);
    y->gate = matrix(l, p, l->d->quant);
    p = loader_part(l, W_LAYER_EMBED_OUT, (int)layer, NO_EXPERT, false, s->hidden, n);
    y->out = matrix(l, p, l->d->quant);
    y->norm = (struct norm){.kind = NORM_RMS, .eps = s->norm.eps};
    y->norm.w = loader_weight_vector(l, W_LAYER_EMBED_NORM, NO_LAYER, n);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct embedded *y = self;
    struct weight *all[] = {y->table, y->proj, y->gate, y->out};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        layer_free_weight(d, all[i]);
    layer_free_norm(d, &y->norm);
    free(y);
}

/* own = the norm of the projection / sqrt(hidden); with a table (e + that) / sqrt 2, e being the
 * row * sqrt(width). `more`: room for it. */
static void own_rows(struct decoder *d, const struct embedded *y, const struct sub_step *s,
                     float *own, float *more)
{
    const uint32_t n = d->spec.per_layer, t = s->tokens;
    float *usual = y->table ? more : own;
    if (y->table)
        d->ops->embed(d->dev, own, y->table, 0, sqrtf((float)n));
    d->ops->linear(d->dev, usual, s->embedded, t, y->proj, NULL);
    d->ops->logit_scale(d->dev, usual, t, n, 1 / sqrtf((float)d->spec.hidden), 0);
    d->ops->norm(d->dev, usual, usual, t, n, &y->norm);
    if (!y->table)
        return;
    d->ops->add_norm(d->dev, NULL, own, usual, 1, t, n, NULL);
    d->ops->logit_scale(d->dev, own, t, n, (float)M_SQRT1_2, 0);
}

/* out = out(act(gate(in)) * own) */
static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct embedded *y = self;
    const struct decoder_spec *m = &d->spec;
    const uint32_t n = m->per_layer, t = s->tokens;
    float *own = work_take(&s->work, t, n), *usual = work_take(&s->work, t, n);
    float *gate = work_take(&s->work, t, n);
    (void)e;
    own_rows(d, y, s, own, usual);
    d->ops->linear(d->dev, gate, s->in, t, y->gate, NULL);
    d->ops->act_by(d->dev, gate, own, t, n, m->act);
    d->ops->linear(d->dev, s->out, gate, t, y->out, NULL);
    return 0;
}

const struct sublayer_ops ffn_embedded = {.name = "embedded",
                                          .width = width,
                                          .load = load,
                                          .free = release,
                                          .forward = forward,
                                          .whole = true};
