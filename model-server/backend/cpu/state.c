/* state.c - recurrent layers: the convolution, the recurrence and the gates of backend.h.
 *
 * A layer's part of a cell. Of a convolution: its last conv_before() inputs. Of a recurrence: for
 * each head, panels of 16 values, [key_dim][16] floats each, so that a thread reads contiguous
 * memory; of RECUR_GATED one float for each value. Threads divide sequences, and channels or heads
 * of each. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/mathf.h"
#include <assert.h>
#include <string.h>

enum { CHANNELS_AT_ONCE = 256 };

static const float zeros[CHANNELS_AT_ONCE];

static float *cell(const struct state_ref *s, uint32_t c) { return s->base + c * s->stride; }
static bool at_start(const struct span *s) { return s->kv_len == s->n; }

/* ---------------------------------------------------------------- convolution */

struct conv_job {
    const struct device *d;
    float *y;
    const float *x;
    size_t x_stride;
    const struct state_ref *s;
    const struct conv *p;
    uint32_t blocks; /* of channels */
};

uint64_t cpu_conv_floats(const struct conv *p) { return (uint64_t)conv_before(p) * p->channels; }

/* Input number `at` of the span; negative ones are in its cell, -1 being the last of them. */
static const float *input(const struct conv_job *j, const struct span *s, int64_t at, uint32_t c)
{
    if (at >= 0)
        return j->x + (size_t)(s->first + at) * j->x_stride + c;
    if (at_start(s))
        return zeros;
    return cell(j->s, s->state_in) + (size_t)(conv_before(j->p) + at) * j->p->channels + c;
}

/* With struct conv.by: the weights of this token. */
static void conv_token_by(const struct conv_job *j, size_t row, const float *const *in, uint32_t c,
                          uint32_t n)
{
    const struct conv *p = j->p;
    float w[CONV_MOST * CHANNELS_AT_ONCE];
    const float *by = p->by + row * (p->channels / p->each) * p->width;
    for (uint32_t k = 0; k < p->width; k++)
        for (uint32_t i = 0; i < n; i++)
            w[k * CHANNELS_AT_ONCE + i] = p->w[(size_t)k * p->channels + c + i] +
                                          by[(c + i) / p->each * p->width + p->width - 1 - k];
    j->d->kern.conv_row(j->y + row * p->channels + c, in, w, CHANNELS_AT_ONCE,
                        p->bias ? p->bias + c : NULL, p->width, n);
}

static void conv_token(const struct conv_job *j, size_t row, const float *const *in, uint32_t c,
                       uint32_t n)
{
    const struct conv *p = j->p;
    const size_t rows = j->d->batch->n_tokens, all = (size_t)p->width * p->channels;
    uint32_t i = 0;
    if (p->by) {
        conv_token_by(j, row, in, c, n);
        return;
    }
    do {
        float *y = j->y + (i * rows + row) * p->channels + c;
        j->d->kern.conv_row(y, in, p->w + i * all + c, p->channels, p->bias ? p->bias + c : NULL,
                            p->width, n);
        if (p->silu)
            j->d->kern.act(y, y, NULL, n, ACT_SILU);
    } while (++i < p->sums);
}

/* Channels [c, c + n) of a span. The inputs are stored last, the oldest first, because both cells
 * may be the same. */
static void conv_span(const struct conv_job *j, const struct span *s, uint32_t c, uint32_t n)
{
    const struct conv *p = j->p;
    const int64_t before = conv_before(p), apart = before / (p->width - 1);
    const float *in[CONV_MOST];
    for (uint32_t t = 0; t < s->n; t++) {
        for (uint32_t k = 0; k < p->width; k++)
            in[k] = input(j, s, (int64_t)t - before + k * apart, c);
        conv_token(j, s->first + t, in, c, n);
    }
    float *out = cell(j->s, s->state_out) + c;
    for (int64_t k = 0; k < before; k++)
        memmove(out + k * p->channels, input(j, s, s->n - before + k, c), n * sizeof(*out));
}

static void conv_blocks(void *arg, int thread, size_t begin, size_t end)
{
    const struct conv_job *j = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const uint32_t c = (uint32_t)(i % j->blocks) * CHANNELS_AT_ONCE, left = j->p->channels - c;
        conv_span(j, &j->d->batch->spans[i / j->blocks], c,
                  left < CHANNELS_AT_ONCE ? left : CHANNELS_AT_ONCE);
    }
}

void cpu_conv(struct device *d, float *y, const float *x, uint32_t x_stride,
              const struct state_ref *s, const struct conv *p)
{
    struct conv_job j = {d, y, x, x_stride, s, p, 0};
    assert(p->width >= 2 && p->width <= CONV_MOST);
    j.blocks = (p->channels + CHANNELS_AT_ONCE - 1) / CHANNELS_AT_ONCE;
    pool_run(d->pool, conv_blocks, &j, (size_t)d->batch->n_spans * j.blocks, 1);
}

/* ---------------------------------------------------------------- recurrence */

struct recur_job {
    const struct device *d;
    float *o;
    const struct state_ref *s;
    const struct recur *p;
    uint32_t groups; /* groups of panels of a head's values; RECUR_GATED: blocks of values */
};

static uint32_t panels_of(const struct recur *p) { return (p->value_dim + LANES - 1) / LANES; }

uint64_t cpu_recur_floats(const struct recur *p)
{
    return (uint64_t)p->heads * panels_of(p) * p->key_dim * LANES;
}

/* To a length of `length`. */
static void unit(const struct device *d, float *x, uint32_t n, float length)
{
    d->kern.soft_cap(x, n, length / sqrtf(d->kern.dot(x, x, n) + 1e-6f), 0.0f);
}

/* RECUR_SCAN: writes the step of each value to p->work. */
static void prepare_scan(const struct recur *p, size_t row)
{
    const uint32_t n = p->heads * p->value_dim;
    const float *step = p->step + row * p->step_stride;
    for (uint32_t i = 0; i < n; i++)
        p->work[row * n + i] = math_softplus(step[i] + p->dt_bias[i]);
}

/* A head's part of p->work: its decay, or one for each element of a key, then beta. */
static uint32_t head_work(const struct recur *p) { return recur_work(p) / p->heads; }

static float step_of(const struct recur *p, size_t row, uint32_t i)
{
    return math_softplus(p->step[row * p->step_stride + i] + p->dt_bias[i]);
}

/* The logarithm of a decay with a floor. */
static float floored(const struct recur *p, size_t row, uint32_t i, float rate)
{
    return p->floor * math_sigmoid(rate * (p->step[row * p->step_stride + i] + p->dt_bias[i]));
}

static void prepare_head(const struct recur *p, size_t row, uint32_t h, float *work)
{
    const float rate = math_exp(p->a_log[h]);
    const uint32_t n = head_work(p) - 1;
    if (p->kind == RECUR_FIXED) {
        work[0] = math_exp(-rate);
        work[1] = 1;
    } else if (p->kind == RECUR_SSM) {
        float dt = step_of(p, row, h);
        dt = p->dt_max < dt ? p->dt_max : dt;
        dt = p->dt_min > dt ? p->dt_min : dt;
        work[0] = math_exp(-rate * dt);
        work[1] = dt;
    } else {
        for (uint32_t i = 0; i < n; i++)
            work[i] = math_exp(p->floor != 0 ? floored(p, row, h * n + i, rate)
                                             : -rate * step_of(p, row, h * n + i));
        work[n] = p->beta_scale * math_sigmoid(p->beta[row * p->beta_stride + h]);
    }
}

/* The part that all values of a head share: p->work, and the lengths of queries and keys. */
static void prepare_row(const struct recur_job *j, size_t row)
{
    const struct recur *p = j->p;
    if (p->kind == RECUR_SCAN) {
        prepare_scan(p, row);
        return;
    }
    if (p->kind == RECUR_RWKV) {
        cpu_rwkv_prepare(j->d, p, row);
        return;
    }
    for (uint32_t h = 0; h < p->heads; h++)
        prepare_head(p, row, h, p->work + (row * p->heads + h) * head_work(p));
    if (p->kind != RECUR_DELTA)
        return;
    float *x = p->x + row * p->x_stride;
    for (uint32_t h = 0; h < p->key_heads; h++) {
        unit(j->d, x + p->q + (size_t)h * p->key_dim, p->key_dim, 1 / sqrtf((float)p->key_dim));
        unit(j->d, x + p->k + (size_t)h * p->key_dim, p->key_dim, 1);
    }
}

static void prepare_rows(void *arg, int thread, size_t begin, size_t end)
{
    (void)thread;
    for (size_t row = begin; row < end; row++)
        prepare_row(arg, row);
}

/* What a token's step of a head has beside its vectors. */
static void set_decay(const struct recur *p, struct recur_step *t, size_t row, uint32_t h,
                      uint32_t at)
{
    const uint32_t first = h * p->value_dim + at;
    if (p->kind == RECUR_SCAN) {
        t->rates = p->rates + (size_t)h * p->key_dim * p->value_dim + at;
        t->rate_stride = p->value_dim;
        t->steps = p->work + row * p->heads * p->value_dim + first;
        t->skip = p->skip + first;
        return;
    }
    const float *work = p->work + (row * p->heads + h) * head_work(p);
    if (p->kind == RECUR_RWKV) {
        t->decays = work, t->erase = work + p->key_dim, t->put = t->erase + p->key_dim;
        return;
    }
    t->decay = work[0], t->beta = work[head_work(p) - 1];
    t->decays = p->by_key ? work : NULL;
}

/* Values [at, at + n) of a head, over a span. */
static void recur_span(const struct recur_job *j, const struct span *s, uint32_t h, uint32_t at,
                       uint32_t n)
{
    const struct recur *p = j->p;
    const size_t panel = (size_t)p->key_dim * LANES, key = h / (p->heads / p->key_heads);
    const size_t first = ((size_t)h * panels_of(p) + at / LANES) * panel,
                 floats = (n + LANES - 1) / LANES * panel;
    struct recur_step t = {.panel = panel,
                           .keys = p->key_dim,
                           .n = n,
                           .skip = p->skip ? p->skip + h : NULL,
                           .delta = p->kind == RECUR_DELTA};
    t.s = cell(j->s, s->state_out) + first;
    t.from = at_start(s) ? t.s : cell(j->s, s->state_in) + first;
    if (at_start(s))
        memset(t.s, 0, floats * sizeof(*t.s));
    for (size_t row = s->first; row < (size_t)s->first + s->n; row++) {
        const float *x = p->x + row * p->x_stride;
        t.k = p->kq ? p->kq + row * 2 * p->key_dim : x + p->k + key * p->key_dim;
        t.q = p->kq ? t.k + p->key_dim : x + p->q + key * p->key_dim;
        t.v = x + p->v + (size_t)h * p->value_dim + at;
        t.o = j->o + (row * p->heads + h) * p->value_dim + at;
        set_decay(p, &t, row, h, at);
        j->d->kern.recur(&t);
        t.from = t.s;
    }
}

static void recur_heads(void *arg, int thread, size_t begin, size_t end)
{
    const struct recur_job *j = arg;
    const uint32_t most = RECUR_PANELS * LANES;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const uint32_t at = (uint32_t)(i % j->groups) * most, left = j->p->value_dim - at;
        const size_t head = i / j->groups;
        recur_span(j, &j->d->batch->spans[head / j->p->heads], (uint32_t)(head % j->p->heads), at,
                   left < most ? left : most);
    }
}

/* RECUR_GATED: values [at, at + n) over a span. */
static void gated_span(const struct recur_job *j, const struct span *s, uint32_t at, uint32_t n)
{
    const struct recur *p = j->p;
    const uint32_t all = p->heads * p->value_dim;
    float *to = cell(j->s, s->state_out) + at;
    const float *from = at_start(s) ? zeros : cell(j->s, s->state_in) + at;
    for (size_t row = s->first; row < (size_t)s->first + s->n; row++) {
        const float *v = p->x + row * p->x_stride + p->v + at;
        const float *step = p->step + row * p->step_stride + at;
        const float *beta = p->beta + row * p->beta_stride + at;
        const bool first = row == s->first && at_start(s);
        for (uint32_t i = 0; i < n; i++) {
            const float l = p->rates[at + i] * math_sigmoid(step[i] + p->dt_bias[at + i]);
            const float u = v[i] * math_sigmoid(beta[i] + p->beta_bias[at + i]);
            const float by = first ? 1 : sqrtf(1 - math_exp(2 * l));
            to[i] = fmaf(by, u, math_exp(l) * from[i]);
        }
        memcpy(j->o + row * all + at, to, n * sizeof(*to));
        from = to;
    }
}

static void gated_blocks(void *arg, int thread, size_t begin, size_t end)
{
    const struct recur_job *j = arg;
    const uint32_t all = j->p->heads * j->p->value_dim;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const uint32_t at = (uint32_t)(i % j->groups) * CHANNELS_AT_ONCE, left = all - at;
        gated_span(j, &j->d->batch->spans[i / j->groups], at,
                   left < CHANNELS_AT_ONCE ? left : CHANNELS_AT_ONCE);
    }
}

void cpu_recur(struct device *d, float *o, const struct state_ref *s, const struct recur *p)
{
    struct recur_job j = {d, o, s, p, 0};
    const struct ragged *b = d->batch;
    if (p->kind == RECUR_GATED) {
        j.groups = (p->heads * p->value_dim + CHANNELS_AT_ONCE - 1) / CHANNELS_AT_ONCE;
        pool_run(d->pool, gated_blocks, &j, (size_t)b->n_spans * j.groups, 1);
        return;
    }
    j.groups = (panels_of(p) + RECUR_PANELS - 1) / RECUR_PANELS;
    pool_run(d->pool, prepare_rows, &j, b->n_tokens, 1);
    pool_run(d->pool, recur_heads, &j, (size_t)b->n_spans * p->heads * j.groups, 1);
    if (p->kind == RECUR_RWKV)
        cpu_rwkv_finish(d, o, p);
}

/* ---------------------------------------------------------------- gates and norms */

struct gate_job {
    const struct device *d;
    float *x;
    size_t x_stride;
    uint32_t n;
    const struct gate_norm *p;
};

static void gate_row(const struct gate_job *j, float *x, size_t row)
{
    const struct gate_norm *p = j->p;
    if (p->kind == GATE_NONE)
        return;
    const float *gate = p->gate + row * p->stride;
    if (p->kind == GATE_SILU || p->kind == GATE_GELU_TANH)
        j->d->kern.act(x, gate, x, j->n, p->kind == GATE_SILU ? ACT_SILU : ACT_GELU_TANH);
    else
        j->d->kern.gate(x, gate, j->n, p->kind == GATE_SIGMOID);
}

static void norm_row(const struct gate_job *j, float *x, size_t row)
{
    const struct gate_norm *p = j->p;
    if (p->squares) {
        const float mean = p->squares[row * SQUARES + p->column] / (float)p->all;
        j->d->kern.soft_cap(x, j->n, 1 / sqrtf(mean + p->eps), 0.0f);
        j->d->kern.gate(x, p->w, j->n, false);
        return;
    }
    for (uint32_t i = 0; p->w && i < j->n; i += p->group)
        j->d->kern.norm_rms(x + i, x + i, p->w + i, NULL, p->group, p->eps);
}

static void gate_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct gate_job *j = arg;
    (void)thread;
    for (size_t row = begin; row < end; row++) {
        float *x = j->x + row * j->x_stride;
        if (j->p->norm_first)
            norm_row(j, x, row);
        gate_row(j, x, row);
        if (!j->p->norm_first)
            norm_row(j, x, row);
    }
}

void cpu_gate_norm(struct device *d, float *x, uint32_t x_stride, uint32_t rows, uint32_t n,
                   const struct gate_norm *p)
{
    struct gate_job j = {d, x, x_stride, n, p};
    pool_run(d->pool, gate_rows, &j, rows, n < 4096 ? 4096 / n : 1);
}

/* ---------------------------------------------------------------- cells */

struct copy_job {
    const struct state_ref *s;
    float *to;
    const float *from;
};

static void copy_part(void *arg, int thread, size_t begin, size_t end)
{
    const struct copy_job *j = arg;
    (void)thread;
    memcpy(j->to + begin, j->from + begin, (end - begin) * sizeof(*j->to));
}

int cpu_state_copy(struct device *d, const struct state_ref *s, const uint32_t *src,
                   const uint32_t *dst, uint32_t n, struct err *e)
{
    (void)e;
    for (uint32_t i = 0; i < n; i++) {
        struct copy_job j = {s, cell(s, dst[i]), cell(s, src[i])};
        if (src[i] != dst[i])
            pool_run(d->pool, copy_part, &j, s->stride, 65536);
    }
    return 0;
}
