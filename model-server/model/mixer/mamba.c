/* mamba.c - Mamba (arXiv 2312.00752): a short convolution over channels, a selective scan whose
 * steps, keys and queries are computed from the convolution's result, and a gate. A layer has one
 * such part, or several with channels of their own, whose results are added (Zamba, arXiv
 * 2405.16712). */
#include "model-server/backend/numbers.h"
#include "model-server/model/mixer/recurrent.h"
#include <math.h>
#include <stdlib.h>

struct part {
    struct weight *in; /* [channels, gates of the channels; hidden] */
    float *in_bias;
    struct short_conv conv;
    struct weight *rank, *keys; /* [step_rank; channels], [keys, queries; channels]: this rank's
                                   channels, so results are summed over ranks */
    struct weight *step;        /* [channels or heads; step_rank] */
    float *dt, *rates, *skip;   /* see struct recur; with by_head rates is its a_log */
    float *norms[3];            /* of steps, keys, queries, or NULL */
    struct out_projection out;
    uint64_t state; /* in a cell */
};

struct mamba {
    uint32_t n;
    struct part parts[];
};

static uint32_t parts_of(const struct recur_spec *r) { return r->parts ? r->parts : 1; }

/* Of each part. */
static struct slice channels_of(const struct decoder *d)
{
    return scaled(d->split.mix_heads, d->spec.recur.value_dim, 0);
}

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct recur_spec *r = &d->spec.recur;
    /* channels and gates, the convolution's result, steps before and after, the result */
    return (void)layer,
           6 * channels_of(d).n + r->step_rank + 2 * r->key_dim + (r->parts ? d->spec.hidden : 0);
}

/* ---------------------------------------------------------------- load */

/* What has one number for each channel or, with by_head, for each head: those of this rank. */
static struct slice steps_of(const struct decoder *d, struct slice channels)
{
    return d->spec.recur.by_head ? d->split.mix_heads : channels;
}

/* Gates of a head, then its channels. */
static void add_by_head(struct loader *l, struct rows *rows, struct mat_part in)
{
    const struct slice heads = l->d->split.mix_heads;
    const uint32_t dim = l->d->spec.recur.value_dim;
    for (uint32_t gate = 0; gate < 2; gate++)
        for (uint32_t h = heads.first; h < heads.first + heads.n; h++)
            rows_add(l, rows, gate, in, (struct slice){(2 * h + !gate) * dim, dim});
}

/* With several parts a channel's gate follows it; else all gates follow all channels. */
static struct rows in_rows(struct loader *l, int layer, bool bias, uint32_t inner, struct slice c)
{
    struct mat_part in =
        loader_part(l, W_MIX_IN, layer, NO_EXPERT, bias, (int64_t)2 * inner, l->d->spec.hidden);
    struct rows rows = {0};
    if (l->d->spec.recur.by_head) {
        add_by_head(l, &rows, in);
        return rows;
    }
    if (!l->d->spec.recur.parts) {
        rows_add(l, &rows, 0, in, c);
        rows_add(l, &rows, 0, in, scaled(c, 1, inner));
        return rows;
    }
    loader_numbers(l, &in);
    for (uint32_t gate = 0; gate < 2; gate++) {
        struct mat_part every = loader_rows(in, gate, inner);
        every.row_stride *= 2;
        rows_add(l, &rows, gate, every, c);
    }
    return rows;
}

/* One of the small matrices of part `p`, of which several are one tensor. */
static struct mat_part small(struct loader *l, enum role role, int layer, uint32_t p, int64_t rows,
                             int64_t cols)
{
    const uint32_t parts = l->d->spec.recur.parts;
    if (!parts)
        return loader_part(l, role, layer, NO_EXPERT, false, rows, cols);
    const struct mat_part all = loader_table(l, role, layer, "", parts * rows, cols);
    return loader_cut(all, p * rows, rows, 0, cols);
}

static struct weight *load_made(struct loader *l, int layer, uint32_t part, struct slice c,
                                struct slice made)
{
    const struct recur_spec *r = &l->d->spec.recur;
    struct mat_part p =
        small(l, W_MIX_STEP_KEYS, layer, part, r->step_rank + 2 * (int64_t)r->key_dim,
              (int64_t)r->heads * r->value_dim);
    p = loader_cut(p, made.first, made.n, c.first, c.n);
    return loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
}

/* Small matrices that determine the whole state: not quantised. */
static void load_steps(struct loader *l, struct part *y, int layer, uint32_t part, struct slice c)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const uint32_t rank = r->step_rank, keys = 2 * r->key_dim;
    const uint32_t all = r->by_head ? r->heads : r->heads * r->value_dim;
    const struct slice own = steps_of(l->d, c);
    y->rank = load_made(l, layer, part, c, (struct slice){r->by_head ? keys : 0, rank});
    y->keys = load_made(l, layer, part, c, (struct slice){r->by_head ? 0 : rank, keys});
    struct mat_part p = small(l, W_MIX_STEP, layer, part, all, rank);
    p = loader_rows(p, own.first, own.n);
    y->step = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    if (r->by_head && (!l->c || loader_has_named(l, W_MIX_DT, layer))) {
        y->dt = loader_plain_vector(l, W_MIX_DT, layer, all, own);
        return;
    }
    p = r->parts ? small(l, W_MIX_DT, layer, part, all, 1)
                 : loader_part(l, W_MIX_STEP, layer, NO_EXPERT, true, all, 1);
    p = loader_rows(p, own.first, own.n);
    y->dt = loader_vector(l, &p, 1, 0);
}

/* W_MIX_RATE [channels][keys] as [heads][keys][value_dim] of -exp(). */
static void load_rates(struct loader *l, struct part *y, int layer, uint32_t inner, struct slice c)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct mat_part p = loader_table(l, W_MIX_RATE, layer, "", inner, r->key_dim);
    const uint32_t dim = r->value_dim, keys = r->key_dim;
    float *host = malloc((size_t)c.n * keys * sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return;
    }
    for (uint32_t i = 0; i < c.n; i++)
        for (uint32_t k = 0; k < keys; k++) {
            const int64_t at = (int64_t)(c.first + i) * keys + k;
            const float log = p.data ? number_at(p.data, p.dtype, at) : 0;
            host[((size_t)(i / dim) * keys + k) * dim + i % dim] = -expf(log);
        }
    y->rates = loader_host_vector(l, host, c.n * keys);
    free(host);
}

static void load_norms(struct loader *l, struct part *y, int layer)
{
    static const enum role roles[] = {W_MIX_STEP_NORM, W_MIX_K_NORM, W_MIX_Q_NORM};
    const struct recur_spec *r = &l->d->spec.recur;
    for (int i = 0; i < 3 && r->scan_norm != SCAN_NORM_NONE; i++) {
        const uint32_t n = i == 0 ? r->step_rank : r->key_dim;
        y->norms[i] = r->scan_norm == SCAN_NORM_BARE
                          ? loader_ones(l, n)
                          : loader_plain_vector(l, roles[i], layer, n, (struct slice){0, n});
    }
}

static void load_part(struct loader *l, struct part *y, int layer, uint32_t part)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice own = channels_of(l->d); /* of the part; c: of all */
    const uint32_t inner = parts_of(r) * r->heads * r->value_dim;
    const struct slice c = scaled(own, 1, part * r->heads * r->value_dim);
    struct rows in = in_rows(l, layer, false, inner, c);
    y->in = rows_pack(l, &in, l->d->dtype, l->d->quant);
    if (r->proj_bias) {
        in = in_rows(l, layer, true, inner, c);
        y->in_bias = rows_vector(l, &in);
    }
    short_conv_load(l, &y->conv, layer, inner, &c, 1);
    y->conv.conv.silu = true;
    load_steps(l, y, layer, part, own);
    if (r->by_head)
        y->rates = loader_plain_vector(l, W_MIX_RATE, layer, r->heads, l->d->split.mix_heads);
    else
        load_rates(l, y, layer, inner, c);
    y->skip =
        loader_plain_vector(l, W_MIX_SKIP, layer, r->by_head ? r->heads : inner, steps_of(l->d, c));
    load_norms(l, y, layer);
    out_projection_load(l, &y->out, layer, inner, c);
    const struct recur size = {
        .heads = l->d->split.mix_heads.n, .key_dim = r->key_dim, .value_dim = r->value_dim};
    y->state = layer_take_state(l->d, l->d->ops->recur_floats(&size));
}

static void *load(struct loader *l, uint32_t at)
{
    const uint32_t n = parts_of(&l->d->spec.recur);
    struct mamba *y = calloc(1, sizeof(*y) + n * sizeof(y->parts[0]));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->n = n;
    for (uint32_t i = 0; i < n; i++)
        load_part(l, &y->parts[i], (int)at, i);
    return y;
}

static void release_part(struct decoder *d, struct part *y)
{
    float *vectors[] = {y->in_bias,  y->dt,       y->rates,   y->skip,
                        y->norms[0], y->norms[1], y->norms[2]};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        d->ops->free(d->dev, vectors[i]);
    layer_free_weight(d, y->in);
    layer_free_weight(d, y->rank);
    layer_free_weight(d, y->keys);
    layer_free_weight(d, y->step);
    short_conv_free(d, &y->conv);
    out_projection_free(d, &y->out);
}

static void release(struct decoder *d, void *self)
{
    struct mamba *y = self;
    for (uint32_t i = 0; i < y->n; i++)
        release_part(d, &y->parts[i]);
    free(y);
}

/* ---------------------------------------------------------------- forward */

static void norm(struct decoder *d, float *x, uint32_t stride, uint32_t rows, uint32_t n,
                 const float *w)
{
    const struct gate_norm p = {
        .kind = GATE_NONE, .w = w, .group = n, .eps = d->spec.recur.scan_eps};
    if (w)
        d->ops->gate_norm(d->dev, x, stride, rows, n, &p);
}

/* Computes the steps of all channels, and keys next to queries, from the convolution's result. */
static int make_steps(struct decoder *d, const struct part *y, struct sub_step *s, const float *x,
                      float *step, float *kq, struct err *e)
{
    const uint32_t t = s->tokens, rank = d->spec.recur.step_rank, keys = d->spec.recur.key_dim;
    float *made = work_take(&s->work, t, rank);
    d->ops->linear(d->dev, made, x, t, y->rank, NULL);
    d->ops->linear(d->dev, kq, x, t, y->keys, NULL);
    if (layer_sum(d, made, (size_t)t * rank, e) || layer_sum(d, kq, (size_t)t * 2 * keys, e))
        return -1;
    norm(d, made, rank, t, rank, y->norms[0]);
    norm(d, kq, 2 * keys, t, keys, y->norms[1]);
    norm(d, kq + keys, 2 * keys, t, keys, y->norms[2]);
    d->ops->linear(d->dev, step, made, t, y->step, NULL);
    return 0;
}

/* o = the scan of x, with keys and queries beside each other in kq. */
static void scan(struct decoder *d, const struct part *y, float *o, float *x, const float *kq,
                 const float *step, float *work)
{
    const struct recur_spec *r = &d->spec.recur;
    const struct slice channels = channels_of(d);
    const struct state_ref state = layer_state(d, y->state);
    d->ops->recur(d->dev, o, &state,
                  &(struct recur){.kind = r->by_head ? RECUR_SSM : RECUR_SCAN,
                                  .heads = d->split.mix_heads.n,
                                  .key_heads = 1,
                                  .key_dim = r->key_dim,
                                  .value_dim = r->value_dim,
                                  .x = x,
                                  .x_stride = channels.n,
                                  .kq = kq,
                                  .step = step,
                                  .step_stride = steps_of(d, channels).n,
                                  .dt_bias = y->dt,
                                  .a_log = r->by_head ? y->rates : NULL,
                                  .rates = r->by_head ? NULL : y->rates,
                                  .skip = y->skip,
                                  .dt_min = r->dt_min,
                                  .dt_max = r->dt_max,
                                  .work = work});
}

static int run_part(struct decoder *d, const struct part *y, struct sub_step *s, struct err *e)
{
    const struct recur_spec *r = &d->spec.recur;
    const uint32_t n = channels_of(d).n, t = s->tokens;
    float *in = work_take(&s->work, t, 2 * (size_t)n), *x = work_take(&s->work, t, n);
    float *kq = work_take(&s->work, t, 2 * (size_t)r->key_dim);
    float *step = work_take(&s->work, t, n), *work = work_take(&s->work, t, n);
    float *o = work_take(&s->work, t, n);
    const struct projection before = {y->in, y->in_bias, LORA_MIX_IN, 2 * n};
    layer_project(d, s->layer, &before, in, s->in, d->spec.hidden, t);
    short_conv_run(d, &y->conv, x, in, 2 * n);
    if (make_steps(d, y, s, x, step, kq, e))
        return -1;
    scan(d, y, o, x, kq, step, work);
    d->ops->gate_norm(d->dev, o, n, t, n,
                      &(struct gate_norm){.kind = GATE_SILU, .gate = in + n, .stride = 2 * n});
    out_projection_run(d, &y->out, s, o, n);
    return 0;
}

/* Parts use the same scratch memory in turn. */
static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct mamba *y = self;
    const uint32_t hidden = d->spec.hidden;
    float *more = y->n > 1 ? work_take(&s->work, s->total, hidden) : NULL;
    for (uint32_t i = 0; i < y->n; i++) {
        struct sub_step part = *s;
        part.out = i ? more : s->out;
        if (run_part(d, &y->parts[i], &part, e))
            return -1;
        if (i)
            d->ops->add_norm(d->dev, NULL, s->out, more, 1, s->tokens, hidden, NULL);
    }
    return 0;
}

const struct sublayer_ops mixer_mamba = {"mamba", width, load, release, forward};
