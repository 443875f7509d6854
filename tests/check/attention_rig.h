/* attention_rig.h - a sequence with random keys and values for tests of attention on the CPU: runs
 * of it in chunks and beside others, and its results in double precision. */
#ifndef TESTS_CHECK_ATTENTION_RIG_H
#define TESTS_CHECK_ATTENTION_RIG_H
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/cpu/hadamard.h"
#include "model-server/backend/numbers.h"
#include "tests/check/cpu_device.h"
#include "tests/check/near.h"
#include "tests/check/random.h"
#include <string.h>

enum { WIDEST = 1088 }; /* head of a case */

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

/* ---------------------------------------------------------------- a sequence */

/* A sequence of `len` tokens with random q, k, v; and how to run it. */
struct sequence {
    struct attn attn;
    uint32_t len, rot, block_size;
    enum kv_dtype dtype;
    bool rounds; /* kv_desc.rounds */
    bool dirty;  /* every block has been another sequence's, whose keys and values were all NaN */
    uint32_t every; /* attention is computed for every so-manieth chunk and the last; 0: for all */
    float *qkv;     /* [len][(n_heads + 2 n_kv_heads) * head_dim], before rope */
    float *rope;
    struct mutual *mutual; /* [len] */
    double **stored; /* [2 n_kv_heads * len]: heads as the cache has them, see stored_head() */
};

static size_t qkv_width(const struct attn *a)
{
    return (size_t)(a->n_heads + 2 * a->n_kv_heads) * a->head_dim;
}

/* Pictures of 100 tokens that begin at multiples of 128; windows of 50 side by side. */
static struct mutual mutual_at(enum attn_mutual how, uint32_t t, uint32_t len)
{
    const uint32_t each = how == MUTUAL_ALONE ? 50 : 128, most = how == MUTUAL_ALONE ? 50 : 100;
    const uint32_t begin = t / each * each;
    if (how == MUTUAL_NONE || t - begin >= most)
        return (struct mutual){0, 0};
    return (struct mutual){begin, begin + most < len ? begin + most : len};
}

static struct sequence sequence_new(struct attn attn, uint32_t len, enum kv_dtype t,
                                    uint32_t block_size)
{
    near_fill();
    struct sequence s = {.attn = attn, .len = len, .dtype = t, .block_size = block_size};
    s.rot = attn.head_dim / 2 & ~1u;
    s.qkv = rng_floats(&rng, len * qkv_width(&attn));
    for (size_t i = 0; i < len * qkv_width(&attn); i++)
        s.qkv[i] *= 0.25f;
    s.mutual = calloc(len, sizeof(*s.mutual));
    for (uint32_t i = 0; i < len; i++)
        s.mutual[i] = mutual_at(attn.mutual, i, len);
    s.rope = malloc((size_t)len * s.rot * sizeof(float) + 4);
    for (uint32_t t2 = 0; t2 < len; t2++)
        for (uint32_t i = 0; i < s.rot / 2; i++) {
            double angle = t2 * pow(10000, -2.0 * i / s.rot);
            s.rope[t2 * s.rot + i] = (float)cos(angle);
            s.rope[t2 * s.rot + s.rot / 2 + i] = (float)sin(angle);
        }
    return s;
}

static void sequence_free(struct sequence *s)
{
    for (size_t i = 0; s->stored && i < (size_t)2 * s->attn.n_kv_heads * s->len; i++)
        free(s->stored[i]);
    free(s->stored), free(s->qkv), free(s->rope), free(s->mutual);
}

/* Spans of one step and their rows. */
struct step {
    struct ragged b;
    struct span spans[2];
    uint32_t *pos, *slots;
    struct mutual *mutual;
    float *qkv, *rope, *out;
};

static struct step step_new(const struct sequence *s, uint32_t tokens)
{
    return (struct step){.pos = malloc(tokens * 4),
                         .slots = malloc(tokens * 4),
                         .mutual = malloc(tokens * sizeof(struct mutual)),
                         .qkv = malloc(tokens * qkv_width(&s->attn) * 4),
                         .rope = malloc((size_t)tokens * s->rot * 4 + 4),
                         .out = malloc((size_t)tokens * s->attn.n_heads * s->attn.head_dim * 4)};
}

static void step_free(struct step *t)
{
    free(t->pos), free(t->slots), free(t->mutual), free(t->qkv), free(t->rope), free(t->out);
}

/* Tokens [at, at + n) of the sequence as the next span. */
static void step_add(struct step *t, const struct sequence *s, const uint32_t *table, uint32_t at,
                     uint32_t n)
{
    size_t width = qkv_width(&s->attn);
    uint32_t row = t->b.n_tokens;
    t->spans[t->b.n_spans++] = (struct span){row, n, at + n, table};
    t->b.n_tokens += n;
    for (uint32_t i = at; i < at + n; i++, row++) {
        t->pos[row] = i;
        t->mutual[row] = s->mutual[i];
        t->slots[row] = table[i / s->block_size] * s->block_size + i % s->block_size;
        memcpy(t->qkv + row * width, s->qkv + i * width, width * 4);
        memcpy(t->rope + (size_t)row * s->rot, s->rope + (size_t)i * s->rot, s->rot * 4);
    }
}

/* Store the keys and values of a step, and compute its attention if asked to. */
static void step_run(struct device *d, struct step *t, const struct sequence *s,
                     struct kv_cache *kv, bool attend)
{
    struct err e = ERR_INIT;
    const struct attn *a = &s->attn;
    struct rope_kv rk = {a->n_heads, a->n_kv_heads, a->head_dim, s->rot, false,
                         t->rope,    NULL,          NULL,        0};
    t->b.mutual = a->mutual ? t->mutual : NULL;
    t->b.pos = t->pos, t->b.slots = t->slots, t->b.spans = t->spans;
    assert_int_equal(ops->step_begin(d, &t->b, &e), 0);
    ops->rope_kv(d, t->qkv, kv, 1, &rk);
    if (attend)
        ops->attention(d, t->out, t->qkv, (uint32_t)qkv_width(a), kv, 1, a);
    assert_int_equal(ops->step_end(d, &e), 0);
}

static void make_dirty(struct device *d, const struct sequence *s, struct kv_cache *kv,
                       uint32_t n_blocks)
{
    uint32_t block;
    struct sequence bad = *s;
    struct step t = step_new(s, s->block_size);
    bad.qkv = malloc(s->block_size * qkv_width(&s->attn) * 4);
    for (size_t i = 0; i < s->block_size * qkv_width(&s->attn); i++)
        bad.qkv[i] = i % 3 ? NAN : INFINITY;
    bad.attn.mutual = MUTUAL_NONE;
    bad.rope = calloc((size_t)s->block_size * s->rot + 1, 4);
    bad.mutual = calloc(s->block_size, sizeof(*bad.mutual));
    for (block = 0; block < n_blocks; block++) {
        t.b = (struct ragged){0};
        step_add(&t, &bad, &block, 0, s->block_size);
        step_run(d, &t, &bad, kv, false);
    }
    free(bad.qkv), free(bad.rope), free(bad.mutual);
    step_free(&t);
}

/* Is attention computed for the chunk that begins at `at`? */
static bool attended(const struct sequence *s, uint32_t chunk, uint32_t at)
{
    return !s->every || at / chunk % s->every == 0 || s->len - at <= chunk;
}

/* Feed the sequence in chunks of at most `chunk` tokens, beside a second, shorter copy of itself
 * when `beside`; o: [len][n_heads * head_dim], of which rows that are not attended stay as they
 * are. */
static void run_sequence(struct device *d, const struct sequence *s, uint32_t chunk, bool beside,
                         float *o)
{
    struct err e = ERR_INIT;
    const struct attn *a = &s->attn;
    size_t out = (size_t)a->n_heads * a->head_dim;
    uint32_t n = (s->len + s->block_size - 1) / s->block_size, other = s->len / 2;
    other -= a->mutual == MUTUAL_ALONE ? other % 50 : a->mutual ? other % 128 : 0;
    struct kv_desc kd = {2,
                         2 * n + 3,
                         s->block_size,
                         s->dtype,
                         {a->n_kv_heads, a->head_dim, a->head_dim},
                         .rounds = s->rounds};
    struct kv_cache *kv = ops->kv_new(d, &kd, &e);
    if (!kv)
        fail_msg("%s", e.msg);
    uint32_t *blocks = malloc(2 * n * sizeof(*blocks)); /* scattered */
    for (uint32_t i = 0; i < 2 * n; i++)
        blocks[i] = (i * 2 + 1) % (2 * n + 1);
    if (s->dirty)
        make_dirty(d, s, kv, 2 * n + 3);
    struct step t = step_new(s, 2 * s->len);
    for (uint32_t at = 0; at < s->len; at += chunk) {
        uint32_t len = s->len - at < chunk ? s->len - at : chunk;
        t.b = (struct ragged){0};
        if (beside && at < other) /* the neighbour comes first */
            step_add(&t, s, blocks + n, at, other - at < len ? other - at : len);
        step_add(&t, s, blocks, at, len);
        step_run(d, &t, s, kv, attended(s, chunk, at));
        if (attended(s, chunk, at))
            memcpy(o + at * out, t.out + t.spans[t.b.n_spans - 1].first * out, len * out * 4);
    }
    ops->kv_free(d, kv);
    step_free(&t);
    free(blocks);
}

/* ---------------------------------------------------------------- in double precision */

/* int4: the steps that lose least, in fp32 with the sums of 16 lanes that the cache has. */
static float best_steps(const float *x, uint32_t n, float most)
{
    float best = 0, least = INFINITY;
    for (int half = 14; half <= 22; half++) {
        float sum[16] = {0}, all = 0;
        const float to = (float)-half / 2 / most;
        for (uint32_t i = 0; i < n; i++) {
            const float d = fmaxf(fminf(rintf(x[i] * to), 7), -8) * (1 / to) - x[i];
            sum[i % 16] += d * d;
        }
        for (int i = 0; i < 16; i++)
            all += sum[i];
        if (all < least)
            least = all, best = to;
    }
    return best;
}

/* What the cache gives back for a head whose numbers after rope are `x`. The steps of int8 and fp8
 * are coarse: a value of 4 has neighbours 0.03 apart in int8. So a number that lies at the middle
 * of two steps must be rounded from the very fp32 product that the cache rounds, not from a nearby
 * double: one step of difference in a value that a narrow window weighs with 1 would be all of that
 * error. */
static void stored(float *x, uint32_t n, enum kv_dtype t)
{
    float most = 0;
    if (t == KV_I4)
        hadamard(x, n, 1);
    for (uint32_t i = 0; i < n; i++)
        most = t == KV_I4 ? (fabsf(x[i]) > fabsf(most) ? x[i] : most) : fmaxf(most, fabsf(x[i]));
    const float to = t == KV_I4 && most != 0 ? best_steps(x, n, most) : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (t == KV_I8)
            x[i] = most > 0 ? rintf(x[i] * (127 / most)) * (most / 127) : 0;
        else if (t == KV_FP8)
            x[i] =
                most > 0 ? f32_of_fp8(fp8_of_f32(x[i] * (FP8_TOP / most))) * (most / FP8_TOP) : 0;
        else if (t == KV_I4)
            x[i] = most != 0 ? fmaxf(fminf(rintf(x[i] * to), 7), -8) * (1 / to) : 0;
        else
            x[i] = t == KV_F32   ? x[i]
                   : t == KV_F16 ? f32_of_f16(f16_of_f32(x[i]))
                                 : f32_of_bf16(bf16_of_f32(x[i]));
    }
    if (t == KV_I4)
        hadamard(x, n, 1);
    for (uint32_t i = 0; t == KV_I4 && i < n; i++)
        x[i] /= (float)hadamard_size(n);
}

/* One head of one token after rope: q in double; K and V as they are stored. What is stored is
 * rotated in fp32, as kernels.h defines `rotate`, and is compared with the rotation in double. */
static void head_of(const struct sequence *s, uint32_t t, uint32_t head, bool cached, double *x)
{
    uint32_t dim = s->attn.head_dim, half = s->rot / 2;
    const float *src = s->qkv + t * qkv_width(&s->attn) + (size_t)head * dim;
    const float *rope = s->rope + (size_t)t * s->rot;
    bool v = head >= s->attn.n_heads + s->attn.n_kv_heads;
    float f[WIDEST];
    for (uint32_t i = 0; i < dim; i++)
        x[i] = f[i] = src[i];
    for (uint32_t i = 0; !v && i < half; i++) {
        float c = rope[i], r = rope[half + i], a = src[i], b = src[i + half];
        x[i] = a * (double)c - b * (double)r;
        x[i + half] = b * (double)c + a * (double)r;
        f[i] = fmaf(-b, r, a * c);
        f[i + half] = fmaf(a, r, b * c);
    }
    if (!cached)
        return;
    for (uint32_t i = 0; i < dim; i++)
        assert_true(fabs(f[i] - x[i]) < 1e-6); /* magnitudes are below 8 */
    stored(f, dim, s->dtype);
    for (uint32_t i = 0; i < dim; i++)
        x[i] = f[i];
}

/* The same of key or value head `head` (n_heads and more) as it is stored; computed once, for the
 * qkv of that time, and owned by the sequence. */
static const double *stored_head(struct sequence *s, uint32_t t, uint32_t head)
{
    const size_t heads = (size_t)2 * s->attn.n_kv_heads;
    if (!s->stored)
        s->stored = calloc(heads * s->len, sizeof(*s->stored));
    double **x = &s->stored[(head - s->attn.n_heads) * s->len + t];
    if (!*x) {
        *x = malloc(s->attn.head_dim * sizeof(**x));
        head_of(s, t, head, true, *x);
    }
    return *x;
}

static double score(const struct sequence *s, const double *q, const double *k, uint32_t head,
                    int64_t dist)
{
    const struct attn *a = &s->attn;
    double dot = 0;
    for (uint32_t i = 0; i < a->head_dim; i++)
        dot += q[i] * k[i];
    dot *= a->scale;
    if (a->softcap > 0)
        dot = a->softcap * tanh(dot / a->softcap);
    if (a->near) {
        const int64_t reach = a->reach, at = dist < -reach ? -reach : dist > reach ? reach : dist;
        dot += a->near[head * NEAR_EACH + at + reach];
    }
    return a->alibi ? dot + a->alibi[head] * (double)dist : dot;
}

/* o of one token and head in double; returns the largest difference from `got`. */
static double attention_error(struct sequence *s, uint32_t t, uint32_t head, const float *got)
{
    const struct attn *a = &s->attn;
    uint32_t dim = a->head_dim, kv = head / (a->n_heads / a->n_kv_heads);
    uint32_t lo = a->window && t + 1 > a->window ? t + 1 - a->window : 0, hi = t;
    lo = a->chunk ? t / a->chunk * a->chunk : lo;
    double q[WIDEST], o[WIDEST] = {0}, sum = 0, max = -INFINITY, worst = 0;
    double *p = malloc(s->len * sizeof(*p));
    while (a->both && hi + 1 < s->len && (!a->window || hi + 1 - t < a->window + a->ahead))
        hi++;
    const struct mutual m = s->mutual[t];
    if (m.end && (a->mutual == MUTUAL_ALONE || (a->mutual == MUTUAL_TOO && m.begin < lo)))
        lo = m.begin;
    if (m.end)
        hi = m.end - 1;
    head_of(s, t, head, false, q);
    for (uint32_t i = lo; i <= hi; i++) {
        p[i] = score(s, q, stored_head(s, i, a->n_heads + kv), head, (int64_t)i - t);
        max = fmax(max, p[i]);
    }
    if (a->sinks) {
        max = fmax(max, a->sinks[head]);
        sum = exp(a->sinks[head] - max);
    }
    for (uint32_t i = lo; i <= hi; i++)
        sum += p[i] = exp(p[i] - max);
    for (uint32_t i = lo; i <= hi; i++) {
        const double *x = stored_head(s, i, a->n_heads + a->n_kv_heads + kv);
        for (uint32_t c = 0; c < dim; c++)
            o[c] += p[i] / sum * x[c];
    }
    for (uint32_t c = 0; c < dim; c++)
        worst = fmax(worst, fabs(o[c] - got[c]));
    free(p);
    return worst;
}
#endif
