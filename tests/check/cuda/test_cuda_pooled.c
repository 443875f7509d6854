/* test_cuda_pooled.c - keys of pools of tokens and selections of pools on a GPU beside the CPU's,
 * in chunks. Without a GPU: on the double. */
#include "tests/check/cuda/cuda_sides.h"

enum { HEADS = 9, DIM = 72, SIZE = 7, TOP = 12, TOKENS = 200, BLOCK = 16 };
enum { N_BLOCKS = TOKENS / BLOCK + 1, LIMIT = SIZE * TOP - 1 };
static const struct kv_layer layers[] = {{1, 32, 32, false, DIM}};

struct inputs {
    uint32_t series; /* of keys, gates and biases */
    bool plain;      /* without gates, biases and weights */
    float *q, *k, *weights, *gates, *bias;
    uint32_t pos[TOKENS], slots[TOKENS], blocks[N_BLOCKS];
};

static void inputs_make(struct inputs *c)
{
    c->q = units((size_t)TOKENS * HEADS * DIM), c->k = units((size_t)TOKENS * 2 * DIM);
    c->weights = units((size_t)TOKENS * HEADS), c->gates = units((size_t)TOKENS * 2 * DIM);
    c->bias = units((size_t)SIZE * 2 * DIM);
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        c->blocks[i] = (i * 5 + 2) % N_BLOCKS;
    for (uint32_t at = 0; at < TOKENS; at++) {
        c->pos[at] = at;
        c->slots[at] = c->blocks[at / BLOCK] * BLOCK + at % BLOCK;
    }
}

static void inputs_free(struct inputs *c)
{
    free(c->q), free(c->k), free(c->weights), free(c->gates), free(c->bias);
}

struct result {
    float keys[TOKENS * DIM];
    uint32_t top[TOKENS * TOP];
};

static void step(struct side s, const struct inputs *c, struct kv_cache *kv, float *cells,
                 uint32_t first, uint32_t n, uint32_t turn, struct result *out)
{
    struct err e = ERR_INIT;
    const struct span span = {
        .n = n, .kv_len = first + n, .blocks = c->blocks, .state_in = turn, .state_out = 1 - turn};
    const struct ragged b = {.n_tokens = n,
                             .n_spans = 1,
                             .pos = c->pos + first,
                             .slots = c->slots + first,
                             .spans = &span};
    float *q = up(s, c->q + (size_t)first * HEADS * DIM, (size_t)n * HEADS * DIM * 4);
    const size_t wide = (size_t)c->series * DIM;
    float *k = up(s, NULL, (size_t)n * DIM * 4), *x = up(s, c->k + first * wide, n * wide * 4);
    float *w = up(s, c->weights + (size_t)first * HEADS, (size_t)n * HEADS * 4);
    float *gates = up(s, c->gates + first * wide, n * wide * 4);
    float *bias = up(s, c->bias, SIZE * wide * 4);
    uint32_t *top = up(s, NULL, (size_t)n * TOP * 4);
    struct pool_keys p = {
        .dim = DIM, .size = SIZE, .series = c->series, .x = x, .gates = gates, .bias = bias};
    if (c->plain)
        p.gates = p.bias = NULL;
    const struct state_ref state = {cells, pool_floats(&p)};
    assert_int_equal(s.ops->step_begin(s.d, &b, &e), 0);
    s.ops->pool_keys(s.d, k, &state, &p);
    s.ops->select_keys(s.d, top, q, k, kv, 0,
                       &(struct select_keys){.n_heads = HEADS,
                                             .dim = DIM,
                                             .top = TOP,
                                             .block = SIZE,
                                             .pooled = true,
                                             .complete = c->series > 1,
                                             .weights = c->plain ? NULL : w});
    if (s.ops->step_end(s.d, &e))
        fail_msg("%s", e.msg);
    down(s, out->keys + (size_t)first * DIM, k, (size_t)n * DIM * 4);
    down(s, out->top + (size_t)first * TOP, top, (size_t)n * TOP * 4);
    s.ops->free(s.d, x), s.ops->free(s.d, q), s.ops->free(s.d, w), s.ops->free(s.d, gates),
        s.ops->free(s.d, bias);
}

static void run(struct side s, const struct inputs *c, uint32_t most, struct result *out)
{
    struct err e = ERR_INIT;
    const struct kv_desc kd = {1, N_BLOCKS, BLOCK, KV_F32, {0}, layers};
    struct kv_cache *kv = s.ops->kv_new(s.d, &kd, &e);
    float *cells = up(s, NULL, 2 * 6 * DIM * sizeof(float));
    assert_non_null(kv);
    memset(out, 0, sizeof(*out));
    for (uint32_t at = 0, n, turn = 0; at < TOKENS; at += n, turn = 1 - turn) {
        n = most == TOKENS ? TOKENS : 1 + rng_below(&rng, most);
        n = n < TOKENS - at ? n : TOKENS - at;
        step(s, c, kv, cells, at, n, turn, out);
    }
    s.ops->free(s.d, cells);
    s.ops->kv_free(s.d, kv);
}

/* Numbers of a selection: with two series all are of complete pools. */
static uint32_t chosen(const struct inputs *c, uint32_t t)
{
    if (c->series > 1)
        return (t + 1) / SIZE > TOP ? TOP : 0;
    return t < LIMIT ? 0 : TOP - ((t + 1) % SIZE == 0);
}

/* Pools that both have selected, of those a token attends to. */
static void assert_same_selections(const struct inputs *c, const struct result *a,
                                   const struct result *b)
{
    uint32_t other = 0, all = 0;
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t i = 0; i < chosen(c, t); i++, all++)
            other += a->top[t * TOP + i] != b->top[t * TOP + i];
    assert_true(all > 0 && other <= all / 100); /* scores may be equal but for rounding */
}

static void check_pools(uint32_t series, bool plain)
{
    static struct result want, got, parts;
    struct inputs c = {.series = series, .plain = plain};
    inputs_make(&c);
    struct side g = open_side(gpu, ~0ull), h = open_side(cpu, ~0ull);
    run(h, &c, TOKENS, &want), run(g, &c, TOKENS, &got), run(g, &c, 23, &parts);
    assert_near(got.keys, want.keys, (size_t)TOKENS * DIM, 1e-5, "keys");
    assert_same_selections(&c, &got, &want);
    assert_memory_equal(got.keys, parts.keys, sizeof(got.keys));
    for (uint32_t t = 0; t < TOKENS; t++)
        assert_memory_equal(got.top + t * TOP, parts.top + t * TOP,
                            chosen(&c, t) * sizeof(uint32_t));
    inputs_free(&c);
    close_side(g), close_side(h);
}

TEST(pools_are_those_of_the_cpu)
{
    check_pools(1, false);
    check_pools(2, false);
    check_pools(1, true);
}

int main(void) { return cuda_tests_run(); }
