/* cuda_sequences.h - sequences fed to attention of the CUDA backend and of the CPU's: any head
 * dimension, type of cache, chunking and block table. */
#ifndef TESTS_CHECK_CUDA_SEQUENCES_H
#define TESTS_CHECK_CUDA_SEQUENCES_H
#include "tests/check/cuda/cuda_sides.h"
#include "tests/check/near.h"

static const float slopes[16] = {.5f, .25f, .125f, .0625f, .03125f, .4f, .3f, .2f,
                                 .1f, .05f, .02f,  .01f,   .7f,     .6f, .9f, .8f};
static const float sinks[16] = {0,    1.5f,  -2, 4, 9,  -30, .5f,       -.25f,
                                2.5f, -1e3f, 88, 3, -4, .1f, -INFINITY, 1};
struct attn_case {
    struct attn attn;
    uint32_t len, block_size;
    enum kv_dtype dtype;
    bool norm, interleaved;
};

struct sequence {
    struct attn_case c;
    uint32_t rot;
    float *qkv, *rope, *norms;
};

static inline size_t qkv_width(const struct attn *a)
{
    return (size_t)(a->n_heads + 2 * a->n_kv_heads) * a->head_dim;
}

static inline struct sequence sequence_new(const struct attn_case *c)
{
    near_fill();
    struct sequence s = {*c, c->attn.head_dim / 2 & ~1u, NULL, NULL, NULL};
    s.qkv = units(c->len * qkv_width(&c->attn));
    s.norms = units(2 * (size_t)c->attn.head_dim);
    s.rope = units((size_t)c->len * s.rot + 1);
    return s;
}

static inline void sequence_free(struct sequence *s)
{
    free(s->qkv), free(s->rope), free(s->norms);
}

/* Part of a batch: a step of one sequence. */
struct feed {
    struct ragged b;
    struct span spans[8];
    uint32_t *pos, *slots;
    struct mutual *mutual;
    float *qkv, *rope;
};

/* Images of 50 tokens at multiples of 64; adjacent windows of 50. */
static inline struct mutual mutual_at(enum attn_mutual how, uint32_t t, uint32_t len)
{
    const uint32_t each = how == MUTUAL_ALONE ? 50 : 64, begin = t / each * each;
    if (how == MUTUAL_NONE || t - begin >= 50)
        return (struct mutual){0, 0};
    return (struct mutual){begin, begin + 50 < len ? begin + 50 : len};
}

static inline void feed_add(struct feed *f, const struct sequence *s, const uint32_t *table,
                            uint32_t at, uint32_t n)
{
    size_t width = qkv_width(&s->c.attn);
    uint32_t size = s->c.block_size;
    if (!n)
        return;
    f->spans[f->b.n_spans++] = (struct span){f->b.n_tokens, n, at + n, table, 0};
    for (uint32_t i = at; i < at + n; i++, f->b.n_tokens++) {
        uint32_t t = f->b.n_tokens;
        f->pos[t] = i;
        f->mutual[t] = mutual_at(s->c.attn.mutual, i, at + n);
        f->slots[t] = table[i / size] * size + i % size;
        memcpy(f->qkv + t * width, s->qkv + i * width, width * 4);
        memcpy(f->rope + (size_t)t * s->rot, s->rope + (size_t)i * s->rot, s->rot * 4);
    }
}

static inline void run_step(struct side s, const struct sequence *q, struct kv_cache *kv,
                            struct feed *f, float *norms, float *o)
{
    struct err e = ERR_INIT;
    const struct attn *a = &q->c.attn;
    size_t width = qkv_width(a), out = (size_t)a->n_heads * a->head_dim, t = f->b.n_tokens;
    float *qkv = up(s, f->qkv, t * width * 4), *rope = up(s, f->rope, t * q->rot * 4);
    float *res = up(s, NULL, t * out * 4), *alibi = up(s, a->alibi, a->n_heads * 4);
    float *sink = up(s, a->sinks, a->n_heads * 4);
    float *near = up(s, a->near, a->near ? sizeof(nears) : 4);
    struct attn dev = *a;
    dev.alibi = a->alibi ? alibi : NULL;
    dev.sinks = a->sinks ? sink : NULL;
    dev.near = a->near ? near : NULL;
    struct rope_kv rk = {a->n_heads,
                         a->n_kv_heads,
                         a->head_dim,
                         q->rot,
                         q->c.interleaved,
                         rope,
                         q->c.norm ? norms : NULL,
                         q->c.norm ? norms + a->head_dim : NULL,
                         1e-6f};
    f->b.mutual = a->mutual ? f->mutual : NULL;
    f->b.pos = f->pos, f->b.slots = f->slots, f->b.spans = f->spans;
    if (s.ops->step_begin(s.d, &f->b, &e))
        fail_msg("%s", e.msg);
    s.ops->rope_kv(s.d, qkv, kv, 1, &rk);
    s.ops->attention(s.d, res, qkv, (uint32_t)width, kv, 1, &dev);
    if (s.ops->step_end(s.d, &e))
        fail_msg("%s", e.msg);
    down(s, o, res, t * out * 4);
    s.ops->free(s.d, qkv), s.ops->free(s.d, rope), s.ops->free(s.d, alibi);
    s.ops->free(s.d, sink), s.ops->free(s.d, near);
}

/* Tokens of the step at `at`. Chunks of 1 are single tokens at the beginning, around the ends of
 * blocks and around those of segments, of 128 keys; what lies between is one step. */
static inline uint32_t step_tokens(uint32_t chunk, uint32_t at, uint32_t len)
{
    const uint32_t in = at % 128, next = in < 28 ? 28 : 120;
    if (chunk > 1 || in < 4 || (in >= 28 && in < 44) || in >= 120 || at + 4 >= len)
        return chunk;
    return at - in + next < len - 4 ? next - in : len - 4 - at;
}

/* Computes the sequence in chunks, in a batch after `beside` shorter copies of itself; o:
 * [len][heads * dim]. */
static inline void run_sequence(struct side s, const struct sequence *q, uint32_t chunk,
                                uint32_t beside, float *o)
{
    struct err e = ERR_INIT;
    const struct attn *a = &q->c.attn;
    uint32_t len = q->c.len, size = q->c.block_size, n_blocks = (len + size - 1) / size;
    size_t width = qkv_width(a), out = (size_t)a->n_heads * a->head_dim;
    uint32_t all = (beside + 1) * n_blocks, most = (beside + 1) * len;
    struct kv_desc kd = {2, all + 3, size, q->c.dtype, {a->n_kv_heads, a->head_dim, a->head_dim}};
    struct kv_cache *kv = s.ops->kv_new(s.d, &kd, &e);
    if (!kv)
        fail_msg("%s", e.msg);
    uint32_t *blocks = malloc(all * 4);
    struct feed f = {.pos = malloc(most * 4),
                     .slots = malloc(most * 4),
                     .mutual = malloc(most * sizeof(struct mutual))};
    f.qkv = malloc(most * width * 4), f.rope = malloc((size_t)most * q->rot * 4 + 4);
    float *res = malloc(most * out * 4), *norms = up(s, q->norms, 2 * (size_t)a->head_dim * 4);
    for (uint32_t i = 0; i < all; i++)
        blocks[i] = all - i + 1; /* neither the first nor in order */
    for (uint32_t at = 0, n; at < len; at += n) {
        n = step_tokens(chunk, at, len);
        f.b = (struct ragged){0};
        for (uint32_t i = 0; i <= beside; i++) {
            uint32_t end = i == beside ? len : len / (i + 2);
            feed_add(&f, q, blocks + i * n_blocks, at, at >= end ? 0 : end - at < n ? end - at : n);
        }
        run_step(s, q, kv, &f, norms, res);
        const struct span *last = &f.spans[f.b.n_spans - 1];
        memcpy(o + at * out, res + last->first * out, last->n * out * 4);
    }
    s.ops->free(s.d, norms);
    s.ops->kv_free(s.d, kv);
    free(f.mutual);
    free(blocks), free(f.pos), free(f.slots), free(f.qkv), free(f.rope), free(res);
}

static inline size_t o_count(const struct attn_case *c)
{
    return (size_t)c->len * c->attn.n_heads * c->attn.head_dim;
}

#endif
