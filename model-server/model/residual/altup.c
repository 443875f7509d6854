/* altup.c - parallel residual streams, and a learned residual beside attention (Gemma 3n).
 *
 * Streams are predicted, the active one is computed as in other families, and all are corrected by
 * the difference (AltUp, arXiv 2301.13310). A matrix of low rank and its norm are added to
 * attention's input and result (LAuReL, arXiv 2411.07501). Every rank computes all of it: it is
 * narrow. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/residual.h"
#include <assert.h>
#include <math.h>

struct altup_layer {
    struct norm router_norm; /* [hidden] */
    struct weight *router;   /* [streams, hidden] */
    struct weight *predict;  /* [streams * streams, streams] */
    struct weight *correct;  /* [streams, streams] */
    float *scale;            /* [hidden], or NULL */
    struct weight *left;     /* [laurel_rank, hidden] */
    struct weight *right;    /* [hidden, laurel_rank] */
    struct norm laurel_norm; /* [hidden] */
};

/* ---------------------------------------------------------------- loading */

static struct weight *matrix(struct loader *l, enum role role, int layer, int64_t rows,
                             int64_t cols, enum dtype dtype, enum quant quant)
{
    struct mat_part p = loader_part(l, role, layer, NO_EXPERT, false, rows, cols);
    return loader_pack(l, &p, 1, dtype, quant);
}

void decoder_altup_load(struct loader *l)
{
    struct decoder *d = l->d;
    const uint32_t hidden = d->spec.hidden;
    for (uint32_t i = 1; i < d->spec.altup.n; i++) {
        const int at = (int)i - 1;
        d->altup_in[i] = matrix(l, W_ALTUP_IN, at, hidden, hidden, d->dtype, d->quant);
        d->altup_out[i] = matrix(l, W_ALTUP_OUT, at, hidden, hidden, d->dtype, d->quant);
    }
}

void decoder_altup_free(struct decoder *d)
{
    for (uint32_t i = 1; i < d->spec.altup.n; i++) {
        layer_free_weight(d, d->altup_in[i]);
        layer_free_weight(d, d->altup_out[i]);
    }
}

/* Both sublayers share what the mixer's part has. */
static void load(struct loader *l, void *part, int layer, enum sub sub)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->altup.n, hidden = s->hidden, rank = s->laurel_rank;
    const enum dtype dtype = l->d->dtype;
    struct altup_layer *y = part;
    if (sub != SUB_MIXER)
        return;
    y->router_norm = loader_norm(l, W_ALTUP_ROUTER_NORM, layer);
    y->router = matrix(l, W_ALTUP_ROUTER, layer, n, hidden, dtype, QUANT_NONE);
    y->predict = matrix(l, W_ALTUP_PREDICT, layer, (int64_t)n * n, n, DT_F32, QUANT_NONE);
    y->correct = matrix(l, W_ALTUP_CORRECT, layer, n, n, DT_F32, QUANT_NONE);
    if (s->altup.scaled)
        y->scale = loader_plain_vector(l, W_ALTUP_SCALE, layer, hidden, (struct slice){0, hidden});
    y->left = matrix(l, W_LAUREL_LEFT, layer, rank, hidden, dtype, l->d->quant);
    y->right = matrix(l, W_LAUREL_RIGHT, layer, hidden, rank, dtype, l->d->quant);
    y->laurel_norm = loader_norm(l, W_LAUREL_NORM, layer);
}

static void release(struct decoder *d, void *part)
{
    struct altup_layer *y = part;
    struct weight *all[] = {y->router, y->predict, y->correct, y->left, y->right};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        layer_free_weight(d, all[i]);
    layer_free_norm(d, &y->router_norm);
    layer_free_norm(d, &y->laurel_norm);
    d->ops->free(d->dev, y->scale);
}

/* ---------------------------------------------------------------- before and after the layers */

static float *stream_at(const struct decoder *d, uint32_t stream, uint32_t t)
{
    return d->scratch.streams + (size_t)stream * t * d->spec.hidden;
}

/* Stream 0 is the embedding; the others are its projections. */
static int begin(struct decoder *d, const struct decoder_part *p, struct err *e)
{
    struct scratch *s = &d->scratch;
    float *const x = s->x;
    assert(p->n == p->total); /* streams are one after the other */
    s->x = s->streams;
    const int rc = decoder_embed(d, p, e);
    s->x = x;
    for (uint32_t i = 1; rc == 0 && i < d->spec.altup.n; i++) {
        d->ops->linear(d->dev, s->r, s->streams, p->n, d->altup_in[i], NULL);
        d->ops->match_rows(d->dev, stream_at(d, i, p->n), s->r, s->streams, p->n, d->spec.hidden,
                           false);
    }
    return rc;
}

/* x = the mean of the streams, each projected back. */
static void end(struct decoder *d, uint32_t t)
{
    const uint32_t n = d->spec.altup.n, hidden = d->spec.hidden;
    struct scratch *s = &d->scratch;
    for (uint32_t i = 1; i < n; i++) {
        d->ops->linear(d->dev, s->r, stream_at(d, i, t), t, d->altup_out[i], NULL);
        d->ops->match_rows(d->dev, s->x, s->r, s->streams, t, hidden, i > 1);
    }
    d->ops->add_norm(d->dev, NULL, s->x, s->streams, 1, t, hidden, NULL);
    d->ops->logit_scale(d->dev, s->x, t, hidden, 1.0f / (float)n, 0);
}

/* ---------------------------------------------------------------- a layer */

/* routed = tanh(router(norm(x)) / hidden), then coefs = w(routed). */
static void route(struct decoder *d, const struct altup_layer *y, const float *x,
                  const struct weight *w, uint32_t t)
{
    const uint32_t n = d->spec.altup.n, hidden = d->spec.hidden;
    struct scratch *s = &d->scratch;
    d->ops->norm(d->dev, s->n, x, t, hidden, &y->router_norm);
    d->ops->linear(d->dev, s->routed, s->n, t, y->router, NULL);
    d->ops->logit_scale(d->dev, s->routed, t, n, 1.0f / (float)hidden, 1);
    d->ops->linear(d->dev, s->coefs, s->routed, t, w, NULL);
}

static void altup(struct decoder *d, enum altup_kind kind, float *x, uint32_t t)
{
    const struct altup p = {.kind = kind,
                            .n = d->spec.altup.n,
                            .active = d->spec.altup.active,
                            .streams = d->scratch.streams,
                            .coefs = d->scratch.coefs};
    d->ops->altup(d->dev, x, t, d->spec.hidden, &p);
}

/* The mixer's input is n, the norm of the predicted stream x. Beside it is the norm of
 * right(left(n)). */
static void read_mixer(struct decoder *d, uint32_t i, uint32_t t)
{
    const struct layer *y = &d->layers[i];
    const struct altup_layer *a = y->residual;
    const uint32_t hidden = d->spec.hidden;
    struct scratch *s = &d->scratch;
    route(d, a, stream_at(d, d->spec.altup.active, t), a->predict, t);
    altup(d, ALTUP_PREDICT, s->x, t);
    d->ops->norm(d->dev, s->n, s->x, t, hidden, &y->mixer_norm);
    d->ops->linear(d->dev, s->narrow, s->n, t, a->left, NULL);
    d->ops->linear(d->dev, s->beside, s->narrow, t, a->right, NULL);
    d->ops->norm(d->dev, s->beside, s->beside, t, hidden, &a->laurel_norm);
}

/* x = (x + attention + n + what is beside) / sqrt 2 */
static void write_mixer(struct decoder *d, uint32_t t)
{
    const uint32_t hidden = d->spec.hidden;
    struct scratch *s = &d->scratch;
    d->ops->add_norm(d->dev, NULL, s->x, s->r, 1, t, hidden, NULL);
    d->ops->add_norm(d->dev, NULL, s->beside, s->n, 1, t, hidden, NULL);
    d->ops->add_norm(d->dev, NULL, s->x, s->beside, 1, t, hidden, NULL);
    d->ops->logit_scale(d->dev, s->x, t, hidden, (float)M_SQRT1_2, 0);
}

/* The streams are corrected; the active one is the input of the layer's embeddings. */
static void write_ffn(struct decoder *d, uint32_t i, uint32_t t)
{
    const struct altup_layer *a = d->layers[i].residual;
    const uint32_t hidden = d->spec.hidden;
    struct scratch *s = &d->scratch;
    d->ops->add_norm(d->dev, NULL, s->x, s->r, 1, t, hidden, NULL);
    route(d, a, s->x, a->correct, t);
    altup(d, ALTUP_CORRECT, s->x, t);
    if (a->scale)
        layer_times(d, s->x, t, hidden, a->scale);
}

static const float *in(const struct decoder *d, uint32_t i, enum sub sub)
{
    (void)i;
    return sub == SUB_TAIL ? d->scratch.x : d->scratch.n;
}

static void read(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    struct scratch *s = &d->scratch;
    assert(p->n == p->total);
    if (sub == SUB_MIXER)
        read_mixer(d, i, p->n);
    else if (sub == SUB_FFN)
        d->ops->norm(d->dev, s->n, s->x, p->n, d->spec.hidden, &d->layers[i].ffn_norm);
}

static const struct norm *post(const struct decoder *d, uint32_t i, enum sub sub)
{
    const struct layer *y = &d->layers[i];
    return sub == SUB_MIXER ? &y->post_mixer_norm
           : sub == SUB_FFN ? &y->post_ffn_norm
                            : &y->post_tail_norm;
}

static void write(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    if (sub == SUB_MIXER)
        write_mixer(d, p->n);
    else if (sub == SUB_FFN)
        write_ffn(d, i, p->n);
    else
        altup(d, ALTUP_SPREAD, d->scratch.r, p->n);
}

const struct residual_ops residual_altup = {.name = "altup",
                                            .part = sizeof(struct altup_layer),
                                            .load = load,
                                            .free = release,
                                            .begin = begin,
                                            .in = in,
                                            .read = read,
                                            .post = post,
                                            .write = write,
                                            .end = end};
