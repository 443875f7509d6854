/* test_cuda_entries.c - entries beside a window, rotations of parts of heads and experts chosen by
 * ids on a GPU beside the CPU's, in chunks. Without a GPU: on the double. */
#include "tests/check/cuda/cuda_sides.h"

enum { HEADS = 5, DIM = 72, ROT = 24, TOKENS = 230, BLOCK = 16, WINDOW = 21, TOP = 9 };
enum { N_BLOCKS = TOKENS / BLOCK + 1 };

struct inputs {
    float *q, *keys, *entries, *rope, sinks[HEADS];
    uint32_t top[TOKENS * TOP], every;
    bool chosen;
    uint32_t pos[TOKENS], slots[TOKENS], blocks[N_BLOCKS];
};

static void inputs_make(struct inputs *c, uint32_t every, bool chosen)
{
    c->every = every, c->chosen = chosen;
    c->q = units((size_t)TOKENS * HEADS * DIM), c->keys = units((size_t)TOKENS * DIM);
    c->entries = units((size_t)TOKENS * DIM), c->rope = units((size_t)TOKENS * ROT);
    for (uint32_t h = 0; h < HEADS; h++)
        c->sinks[h] = (float)h - 2;
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        c->blocks[i] = (i * 7 + 2) % N_BLOCKS;
    for (uint32_t at = 0; at < TOKENS; at++) {
        c->pos[at] = at;
        c->slots[at] = c->blocks[at / BLOCK] * BLOCK + at % BLOCK;
        for (uint32_t i = 0; i < TOP; i++) /* every other one of the last */
            c->top[at * TOP + i] =
                (at + 1) / every > 2 * TOP ? (at + 1) / every - 2 * (TOP - i) : i;
    }
}

static void inputs_free(struct inputs *c)
{
    free(c->q), free(c->keys), free(c->entries), free(c->rope);
}

static void step(struct side s, const struct inputs *c, struct kv_cache *kv, uint32_t first,
                 uint32_t n, float *out)
{
    struct err e = ERR_INIT;
    const struct span span = {.n = n, .kv_len = first + n, .blocks = c->blocks};
    const struct ragged b = {.n_tokens = n,
                             .n_spans = 1,
                             .pos = c->pos + first,
                             .slots = c->slots + first,
                             .spans = &span};
    const size_t at = first, row = (size_t)HEADS * DIM;
    float *q = up(s, c->q + at * row, n * row * 4), *o = up(s, NULL, n * row * 4);
    float *keys = up(s, c->keys + at * DIM, (size_t)n * DIM * 4);
    float *entries = up(s, c->entries + at * DIM, (size_t)n * DIM * 4);
    float *rope = up(s, c->rope + at * ROT, (size_t)n * ROT * 4),
          *sinks = up(s, c->sinks, HEADS * 4);
    uint32_t *top = up(s, c->top + at * TOP, (size_t)n * TOP * 4);
    struct turn turn = {HEADS, DIM, DIM - ROT, ROT, true, false, rope};
    assert_int_equal(s.ops->step_begin(s.d, &b, &e), 0);
    s.ops->turn(s.d, q, &turn);
    s.ops->keep(s.d, kv, 1, keys, false);
    s.ops->keep(s.d, kv, 1, entries, true);
    s.ops->attention(s.d, o, q, HEADS * DIM, kv, 1,
                     &(struct attn){.n_heads = HEADS,
                                    .n_kv_heads = 1,
                                    .head_dim = DIM,
                                    .scale = 0.3F,
                                    .window = WINDOW,
                                    .sinks = sinks,
                                    .entries = c->every,
                                    .top = c->chosen ? top : NULL,
                                    .n_top = c->chosen ? TOP : 0});
    turn.back = true, turn.interleaved = false;
    s.ops->turn(s.d, o, &turn);
    if (s.ops->step_end(s.d, &e))
        fail_msg("%s", e.msg);
    down(s, out + at * row, o, n * row * 4);
    s.ops->free(s.d, q), s.ops->free(s.d, keys), s.ops->free(s.d, entries);
    s.ops->free(s.d, rope), s.ops->free(s.d, sinks), s.ops->free(s.d, top);
}

static float *run(struct side s, const struct inputs *c, enum kv_dtype t, uint32_t most)
{
    struct err e = ERR_INIT;
    const struct kv_layer layers[] = {
        {2, 16, 16, false}, {1, DIM, DIM, .latent = true, .index_dim = 16, .every = c->every}};
    struct kv_cache *kv =
        s.ops->kv_new(s.d, &(struct kv_desc){2, N_BLOCKS, BLOCK, t, {0}, layers}, &e);
    float *out = calloc((size_t)TOKENS * HEADS * DIM, sizeof(*out));
    if (!kv)
        fail_msg("%s", e.msg);
    for (uint32_t at = 0, n; at < TOKENS; at += n) {
        n = most == TOKENS ? TOKENS : 1 + rng_below(&rng, most);
        n = n < TOKENS - at ? n : TOKENS - at;
        step(s, c, kv, at, n, out);
    }
    s.ops->kv_free(s.d, kv);
    return out;
}

TEST(attention_is_that_of_the_cpu)
{
    static const enum kv_dtype types[] = {KV_F32, KV_F16, KV_BF16, KV_I8, KV_FP8};
    static const uint32_t every[] = {4, 10, 50, 1, 16};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        struct inputs c;
        inputs_make(&c, every[i], i % 2 == 0);
        struct side g = open_side(gpu, ~0ull), h = open_side(cpu, ~0ull);
        float *want = run(h, &c, types[i], TOKENS), *got = run(g, &c, types[i], TOKENS);
        float *parts = run(g, &c, types[i], 23);
        const size_t n = (size_t)TOKENS * HEADS * DIM;
        assert_near(got, want, n, 2e-5, "attention");
        assert_memory_equal(got, parts, n * sizeof(*got));
        free(want), free(got), free(parts);
        inputs_free(&c);
        close_side(g), close_side(h);
    }
}

/* ---------------------------------------------------------------- experts by ids */

enum { ROWS = 40, EXPERTS = 7, HIDDEN = 64, FFN = 32, IDS = 9, K = 3 };

static float *experts(struct side s, const float *w, const float *x, const uint32_t *table,
                      const uint32_t *ids)
{
    struct err e = ERR_INIT;
    struct weight *ups[EXPERTS], *downs[EXPERTS], *router = load(s, w, EXPERTS, HIDDEN, DT_F32);
    uint32_t zero[ROWS] = {0}, *dev = up(s, table, IDS * K * 4);
    const struct span span = {.n = ROWS, .kv_len = ROWS, .blocks = zero};
    const struct ragged b = {
        .n_tokens = ROWS, .n_spans = 1, .ids = ids, .pos = zero, .slots = zero, .spans = &span};
    float *dx = up(s, x, ROWS * HIDDEN * 4), *dy = up(s, NULL, ROWS * HIDDEN * 4);
    float *out = malloc(ROWS * HIDDEN * 4);
    for (uint32_t i = 0; i < EXPERTS; i++) {
        ups[i] = load(s, w + (size_t)i * 100, 2 * FFN, HIDDEN, DT_F32);
        downs[i] = load(s, w + (size_t)i * 90, HIDDEN, FFN, DT_F32);
    }
    assert_int_equal(s.ops->step_begin(s.d, &b, &e), 0);
    s.ops->moe(s.d, dy, dx, ROWS,
               &(struct moe){.router = router,
                             .up = ups,
                             .down = downs,
                             .n_experts = EXPERTS,
                             .top_k = K,
                             .renormalise = true,
                             .score = MOE_SQRT_SOFTPLUS,
                             .scale = 1.5F,
                             .by_id = dev,
                             .n_ids = IDS,
                             .act = ACT_SILU_CLAMPED});
    if (s.ops->step_end(s.d, &e))
        fail_msg("%s", e.msg);
    down(s, out, dy, ROWS * HIDDEN * 4);
    s.ops->free(s.d, dx), s.ops->free(s.d, dev);
    s.ops->weight_free(s.d, router);
    for (uint32_t i = 0; i < EXPERTS; i++)
        s.ops->weight_free(s.d, ups[i]), s.ops->weight_free(s.d, downs[i]);
    return out;
}

TEST(experts_by_id_are_those_of_the_cpu)
{
    float *w = units((size_t)EXPERTS * 100 + 2 * FFN * HIDDEN), *x = units(ROWS * HIDDEN);
    uint32_t table[IDS * K], ids[ROWS];
    for (uint32_t i = 0; i < IDS * K; i++)
        table[i] = (i / K * 4 + i % K * 2) % EXPERTS;
    for (uint32_t i = 0; i < ROWS; i++)
        ids[i] = rng_below(&rng, IDS + 1);
    struct side g = open_side(gpu, ~0ull), h = open_side(cpu, ~0ull);
    float *want = experts(h, w, x, table, ids), *got = experts(g, w, x, table, ids);
    assert_near(got, want, ROWS * HIDDEN, 1e-5, "experts");
    free(want), free(got), free(w), free(x);
    close_side(g), close_side(h);
}

int main(void) { return cuda_tests_run(); }
