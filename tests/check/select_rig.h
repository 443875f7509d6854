/* select_rig.h - a layer of sparse attention on the CPU for tests: its inputs, runs of it in
 * chunks, and what holds whether positions are selected or blocks of them: the same bits on every
 * instruction set, number of threads and cut of a prompt, and where everything is selected those of
 * plain attention. */
#ifndef TESTS_CHECK_SELECT_RIG_H
#define TESTS_CHECK_SELECT_RIG_H
#include "model-server/backend/cpu/cpu.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <math.h>
#include <string.h>

/* More keys than two splits, a last page that is not full */
enum { HEADS = 6, DIM = 32, INDEX = 24, ROT = 16 };
enum { TOKENS = 600, BLOCK = 32, N_BLOCKS = TOKENS / BLOCK + 2 };

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

/* How a layer selects, and where it is in the cache. */
struct select_kind {
    uint32_t kv_heads, index_heads;
    uint32_t sets;         /* selections of a token */
    uint32_t top;          /* positions or blocks of a selection */
    uint32_t block, local; /* see struct select_keys */
    bool weighted;         /* index heads have weights */
    bool pooled;
    uint32_t n_layers, layer;
    const struct kv_layer *layers;
};

/* Inputs of one layer. */
struct layer_case {
    const struct select_kind *of;
    float *qkv, *q, *k, *weights, *rope;
    uint32_t pos[TOKENS], slots[TOKENS], blocks[N_BLOCKS];
    enum kv_dtype dtype;
    uint32_t top; /* 0: attention to all */
    bool turns;
    uint8_t squares; /* parts in which attention multiplies in squares; 0: on vectors */
};

struct result {
    float *o;      /* [TOKENS, HEADS * DIM] */
    uint32_t *top; /* [TOKENS, sets, top] */
};

static size_t qkv_width(const struct select_kind *of)
{
    return (size_t)(HEADS + 2 * of->kv_heads) * DIM;
}

static void case_make(struct layer_case *c, const struct select_kind *of, enum kv_dtype t)
{
    *c = (struct layer_case){.of = of, .dtype = t, .top = of->top, .turns = true};
    c->qkv = rng_floats(&rng, TOKENS * qkv_width(of));
    c->q = rng_floats(&rng, (size_t)TOKENS * of->index_heads * INDEX);
    c->k = rng_floats(&rng, (size_t)TOKENS * INDEX);
    c->weights = of->weighted ? rng_floats(&rng, (size_t)TOKENS * of->index_heads) : NULL;
    c->rope = malloc((size_t)TOKENS * ROT * sizeof(float));
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        c->blocks[i] = (i * 7 + 3) % N_BLOCKS;
    for (uint32_t at = 0; at < TOKENS; at++) {
        c->pos[at] = at;
        c->slots[at] = c->blocks[at / BLOCK] * BLOCK + at % BLOCK;
        for (uint32_t i = 0; i < ROT / 2; i++) {
            const double angle = at / pow(100, 2.0 * i / ROT);
            c->rope[at * ROT + i] = (float)cos(angle);
            c->rope[at * ROT + ROT / 2 + i] = (float)sin(angle);
        }
    }
}

static void case_free(struct layer_case *c)
{
    free(c->qkv), free(c->q), free(c->k), free(c->weights), free(c->rope);
}

static float *copy(const float *x, size_t n)
{
    float *y = malloc(n * sizeof(*y));
    memcpy(y, x, n * sizeof(*y));
    return y;
}

static void step(struct device *d, const struct layer_case *c, struct kv_cache *kv, uint32_t first,
                 uint32_t n, struct result *out)
{
    struct err e = ERR_INIT;
    const struct select_kind *of = c->of;
    const size_t at = first, width = qkv_width(of);
    const struct span span = {0, n, first + n, c->blocks};
    const struct ragged b = {.n_tokens = n,
                             .n_spans = 1,
                             .pos = c->pos + first,
                             .slots = c->slots + first,
                             .spans = &span};
    float *qkv = copy(c->qkv + at * width, n * width);
    float *q = copy(c->q + at * of->index_heads * INDEX, (size_t)n * of->index_heads * INDEX);
    float *k = copy(c->k + at * INDEX, (size_t)n * INDEX);
    uint32_t *top = c->top ? out->top + at * of->sets * c->top : NULL;
    assert_int_equal(ops->step_begin(d, &b, &e), 0);
    if (top)
        ops->select_keys(d, top, q, k, kv, of->layer,
                         &(struct select_keys){
                             .n_heads = of->index_heads,
                             .dim = INDEX,
                             .rot_dim = ROT,
                             .top = c->top,
                             .block = of->block,
                             .local = of->local,
                             .pooled = of->pooled,
                             .rope = c->turns ? c->rope + at * ROT : NULL,
                             .weights = of->weighted ? c->weights + at * of->index_heads : NULL});
    ops->rope_kv(d, qkv, kv, of->layer,
                 &(struct rope_kv){.n_heads = HEADS, .n_kv_heads = of->kv_heads, .head_dim = DIM});
    ops->attention(d, out->o + at * HEADS * DIM, qkv, (uint32_t)width, kv, of->layer,
                   &(struct attn){.n_heads = HEADS,
                                  .n_kv_heads = of->kv_heads,
                                  .head_dim = DIM,
                                  .scale = 0.3F,
                                  .top = top,
                                  .n_top = c->top,
                                  .top_block = of->block,
                                  .top_tail = of->pooled});
    assert_int_equal(ops->step_end(d, &e), 0);
    free(qkv), free(q), free(k);
}

/* The whole layer in chunks of up to `most` tokens. */
static struct result run(const struct layer_case *c, int threads, uint64_t features, uint32_t most)
{
    const struct select_kind *of = c->of;
    struct err e = ERR_INIT;
    struct device *d = device(threads, features);
    d->kv[false] = (struct kv_products){.squares = c->squares};
    const struct kv_desc kd = {of->n_layers, N_BLOCKS, BLOCK, c->dtype, {0}, of->layers};
    struct kv_cache *kv = ops->kv_new(d, &kd, &e);
    struct result r = {
        .o = calloc((size_t)TOKENS * HEADS * DIM, sizeof(float)),
        .top = calloc((size_t)TOKENS * of->sets * (c->top ? c->top : 1), sizeof(uint32_t))};
    if (!kv)
        fail_msg("%s", e.msg);
    for (uint32_t at = 0, n; at < TOKENS; at += n) {
        n = most == TOKENS ? TOKENS : 1 + rng_below(&rng, most);
        n = n < TOKENS - at ? n : TOKENS - at;
        step(d, c, kv, at, n, &r);
    }
    ops->kv_free(d, kv);
    ops->close(d);
    return r;
}

static void result_free(struct result *r) { free(r->o), free(r->top); }

static void assert_same(const struct layer_case *c, const struct result *a, const struct result *b)
{
    assert_memory_equal(a->o, b->o, (size_t)TOKENS * HEADS * DIM * sizeof(float));
    assert_memory_equal(a->top, b->top, (size_t)TOKENS * c->of->sets * c->top * sizeof(uint32_t));
}

/* x of a token in double precision, whose halves of the first ROT elements rotate. */
static void turned(const struct layer_case *c, uint32_t token, const float *x, double *y)
{
    const float *rope = c->rope + (size_t)token * ROT;
    for (uint32_t i = 0; i < INDEX; i++)
        y[i] = x[i];
    for (uint32_t i = 0; c->turns && i < ROT / 2; i++) {
        const double co = rope[i], si = rope[ROT / 2 + i];
        y[i] = x[i] * co - x[i + ROT / 2] * si;
        y[i + ROT / 2] = x[i + ROT / 2] * co + x[i] * si;
    }
}

static void check_same_bits(const struct select_kind *of)
{
    static const struct {
        uint64_t whole, parts;
        int threads;
        uint32_t cut;
    } pairs[] = {{~0ull, CPU_AVX2, 1, TOKENS}, {~0ull, 0, 1, TOKENS}, {~0ull, ~0ull, 3, 41}};
    for (enum kv_dtype t = 0; t < KV_N; t++) {
        struct layer_case c;
        case_make(&c, of, t);
        const size_t n = sizeof(pairs) / sizeof(pairs[0]), forms = t == KV_BF16 ? 2 : 1;
        for (size_t i = 0; i < n * forms; i++) {
            c.squares = i < n ? 0 : SQUARE_PARTS;
            struct result whole = run(&c, 1, pairs[i % n].whole, TOKENS);
            struct result parts =
                run(&c, pairs[i % n].threads, pairs[i % n].parts, pairs[i % n].cut);
            assert_same(&c, &whole, &parts);
            result_free(&whole), result_free(&parts);
        }
        case_free(&c);
    }
}

/* Where everything is selected, by `all_top`, and for the first `limit` tokens, before a selection
 * begins. */
static void check_plain_attention(const struct select_kind *of, uint32_t all_top, uint32_t limit)
{
    for (enum kv_dtype t = 0; t < KV_N; t++) {
        struct layer_case c;
        case_make(&c, of, t);
        c.squares = t == KV_BF16 ? SQUARE_PARTS : 0;
        c.top = 0;
        struct result plain = run(&c, 2, ~0ull, TOKENS);
        c.top = of->top;
        struct result some = run(&c, 2, ~0ull, TOKENS);
        c.top = all_top;
        struct result all = run(&c, 2, ~0ull, TOKENS);
        const size_t row = (size_t)HEADS * DIM * sizeof(float);
        assert_memory_equal(all.o, plain.o, TOKENS * row);
        assert_memory_equal(some.o, plain.o, limit * row);
        assert_true(memcmp(some.o, plain.o, TOKENS * row) != 0);
        result_free(&plain), result_free(&some), result_free(&all);
        case_free(&c);
    }
}

#endif
