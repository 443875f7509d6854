/* gated.c - several residual streams that gates of each number join (Qwen4-Exp): a
 * sublayer reads the mean of the streams' norms, each number times a sigmoid, which a pair of
 * matrices of low rank makes of all of them. The result is added to each stream, times a factor of
 * the token. The head reads such a mean without a norm. Every rank computes all of it. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/residual.h"

struct gated_part {
    float *norm;              /* [n * hidden] */
    struct weight *down, *up; /* [rank, n * hidden], [n * hidden, rank] */
    struct weight *factors;   /* [n, n * hidden]; NULL: of the head */
};
/* ---------------------------------------------------------------- loading */

/* All of a token passes through them: they keep their numbers. */
static struct weight *matrix(struct loader *l, enum role role, int layer, int64_t rows,
                             int64_t cols)
{
    struct mat_part p = loader_part(l, role, layer, NO_EXPERT, false, rows, cols);
    return loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
}

/* The gates work where the sublayer will. */
static void take_width(struct decoder *d)
{
    const struct mix_spec *m = &d->spec.mix;
    const uint32_t width = 2 * m->n * d->spec.hidden + m->rank;
    d->mixer_width = width > d->mixer_width ? width : d->mixer_width;
    d->ffn_width = width > d->ffn_width ? width : d->ffn_width;
}

static enum role role_of(enum role mixer, enum sub sub)
{
    return mixer + (sub < SUBS ? sub : SUB_TAIL); /* the head's is the third */
}

static void load(struct loader *l, void *part, int layer, enum sub sub)
{
    const struct mix_spec *m = &l->d->spec.mix;
    const uint32_t all = m->n * l->d->spec.hidden;
    struct gated_part *y = part;
    take_width(l->d);
    y->norm = loader_weight_vector(l, role_of(W_HYPER_NORM, sub), layer, all);
    y->down = matrix(l, role_of(W_HYPER_DOWN, sub), layer, m->rank, all);
    y->up = matrix(l, role_of(W_HYPER_UP, sub), layer, all, m->rank);
    if (sub != SUBS)
        y->factors = matrix(l, role_of(W_HYPER_FACTORS, sub), layer, m->n, all);
}

static void release(struct decoder *d, void *part)
{
    struct gated_part *y = part;
    d->ops->free(d->dev, y->norm);
    layer_free_weight(d, y->down);
    layer_free_weight(d, y->up);
    layer_free_weight(d, y->factors);
}

/* ---------------------------------------------------------------- in a step */

/* Rows `p` of the streams and of the result's factors. */
static struct mix mix_of(const struct decoder *d, const struct decoder_part *p, enum mix_kind kind)
{
    const uint32_t n = d->spec.mix.n;
    return (struct mix){.kind = kind,
                        .n = n,
                        .streams = d->scratch.streams + (size_t)p->first * n * d->spec.hidden,
                        .factors = d->scratch.coefs + (size_t)p->first * n};
}

static int begin(struct decoder *d, const struct decoder_part *p, struct err *e)
{
    const struct mix k = mix_of(d, p, MIX_SPREAD);
    if (decoder_embed(d, p, e))
        return -1;
    d->ops->mix(d->dev, decoder_rows(d, d->scratch.x, p), p->n, d->spec.hidden, &k);
    return 0;
}

/* y = the mean of the gated norms, and the factors of the result. `work`: memory for it. */
static void join(struct decoder *d, const struct gated_part *y, float *to,
                 const struct decoder_part *p, void *work)
{
    const uint32_t k = d->spec.mix.n, hidden = d->spec.hidden, n = k * hidden, t = p->n;
    const uint32_t rank = d->spec.mix.rank;
    const float part = 1 / (float)k;
    struct mix mean = mix_of(d, p, MIX_MEAN);
    struct work w = {work};
    float *x = work_take(&w, t, n), *gate = work_take(&w, t, n), *low = work_take(&w, t, rank);
    d->ops->beside(d->dev, x, mean.streams, NULL, t, n);
    d->ops->gate_norm(
        d->dev, x, n, t, n,
        &(struct gate_norm){
            .kind = GATE_NONE, .w = y->norm, .group = hidden, .eps = d->spec.norm.eps});
    if (y->factors) {
        d->ops->linear(d->dev, mean.factors, x, t, y->factors, NULL);
        d->ops->logit_scale(d->dev, mean.factors, t, k, part, 0);
        d->ops->act(d->dev, mean.factors, t, k, ACT_SIGMOID);
        d->ops->logit_scale(d->dev, mean.factors, t, k, 2, 0);
    }
    d->ops->linear(d->dev, low, x, t, y->down, NULL);
    d->ops->logit_scale(d->dev, low, t, rank, part, 0);
    d->ops->act(d->dev, low, t, rank, ACT_SILU);
    d->ops->linear(d->dev, gate, low, t, y->up, NULL);
    d->ops->gate_norm(d->dev, x, n, t, n,
                      &(struct gate_norm){.kind = GATE_SIGMOID, .gate = gate, .stride = n});
    mean.streams = x;
    d->ops->mix(d->dev, to, t, hidden, &mean);
}

static void read(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const struct gated_part *y = d->layers[i].residual;
    join(d, &y[sub], decoder_rows(d, d->scratch.n, p), p,
         sub == SUB_FFN ? d->scratch.ffn : d->scratch.mixer);
}

static void write(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const struct mix k = mix_of(d, p, MIX_ADD);
    (void)i, (void)sub;
    d->ops->mix(d->dev, decoder_rows(d, d->scratch.r, p), p->n, d->spec.hidden, &k);
}

static void end(struct decoder *d, uint32_t t)
{
    const struct decoder_part all = {0, t, t};
    join(d, d->residual_last, d->scratch.x, &all, d->scratch.mixer);
}

const struct residual_ops residual_gated = {.name = "gated",
                                            .part = sizeof(struct gated_part),
                                            .last = true,
                                            .load = load,
                                            .free = release,
                                            .begin = begin,
                                            .read = read,
                                            .write = write,
                                            .end = end};
