/* test_cuda_select.c - sparse attention of the CUDA backend beside the CPU's: what is selected,
 * what is attended to, the same bits for every cut of a prompt and after a swap. */
#include "tests/check/cuda/cuda_sides.h"
#include <math.h>

enum { HEADS = 6, KV_HEADS = 2, DIM = 32, INDEX_HEADS = 19, INDEX = 40, ROT = 16 };
enum { TOKENS = 300, TOP = 130, BLOCK = 16, N_BLOCKS = TOKENS / BLOCK + 2 };
enum { UNIT = 7, UNITS = 12, LOCAL = 2 }; /* of blocks */
enum { QKV = (HEADS + 2 * KV_HEADS) * DIM, OUT = HEADS * DIM };

struct inputs {
    float *qkv, *q, *k, *weights, *rope;
    uint32_t pos[TOKENS], slots[TOKENS], blocks[N_BLOCKS];
};

static void inputs_make(struct inputs *c)
{
    c->qkv = units((size_t)TOKENS * QKV);
    c->q = units((size_t)TOKENS * INDEX_HEADS * INDEX);
    c->k = units((size_t)TOKENS * INDEX);
    c->weights = units((size_t)TOKENS * INDEX_HEADS);
    c->rope = units((size_t)TOKENS * ROT);
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        c->blocks[i] = (i * 7 + 3) % N_BLOCKS;
    for (uint32_t at = 0; at < TOKENS; at++) {
        c->pos[at] = at;
        c->slots[at] = c->blocks[at / BLOCK] * BLOCK + at % BLOCK;
    }
}

static void inputs_free(struct inputs *c)
{
    free(c->qkv), free(c->q), free(c->k), free(c->weights), free(c->rope);
}

struct result {
    float o[TOKENS * OUT];
    uint32_t top[TOKENS * TOP];
};

/* A selection of positions, or of blocks for each key-value head. */
struct how {
    bool interleaved, by_blocks;
};
static uint32_t heads_of(struct how h) { return h.by_blocks ? KV_HEADS : INDEX_HEADS; }
/* Numbers of a token's selection, and from which token on there is one. */
static uint32_t tops_of(struct how h) { return h.by_blocks ? KV_HEADS * UNITS : TOP; }
static uint32_t limit_of(struct how h) { return h.by_blocks ? UNIT * UNITS : TOP; }

static void *part_of(struct side s, const float *x, uint32_t first, uint32_t n, size_t width)
{
    return up(s, x + first * width, n * width * sizeof(*x));
}

static void step(struct side s, const struct inputs *c, struct kv_cache *kv, uint32_t first,
                 uint32_t n, struct how how, struct result *out)
{
    struct err e = ERR_INIT;
    const struct span span = {0, n, first + n, c->blocks};
    const struct ragged b = {.n_tokens = n,
                             .n_spans = 1,
                             .pos = c->pos + first,
                             .slots = c->slots + first,
                             .spans = &span};
    float *qkv = part_of(s, c->qkv, first, n, QKV), *k = part_of(s, c->k, first, n, INDEX);
    float *q = part_of(s, c->q, first, n, (size_t)heads_of(how) * INDEX);
    const uint32_t tops = tops_of(how), unit = how.by_blocks ? UNIT : 0;
    float *w = part_of(s, c->weights, first, n, INDEX_HEADS);
    float *rope = part_of(s, c->rope, first, n, ROT), *o = up(s, NULL, (size_t)n * OUT * 4);
    uint32_t *top = up(s, NULL, (size_t)n * tops * 4);
    const struct select_keys p = {.n_heads = heads_of(how),
                                  .dim = INDEX,
                                  .rot_dim = ROT,
                                  .top = how.by_blocks ? UNITS : TOP,
                                  .block = unit,
                                  .local = LOCAL,
                                  .interleaved = how.interleaved,
                                  .rope = rope,
                                  .weights = w};
    const struct attn a = {.n_heads = HEADS,
                           .n_kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .scale = 0.3F,
                           .top = top,
                           .n_top = p.top,
                           .top_block = unit};
    assert_int_equal(s.ops->step_begin(s.d, &b, &e), 0);
    s.ops->select_keys(s.d, top, q, k, kv, 1, &p);
    s.ops->rope_kv(s.d, qkv, kv, 1,
                   &(struct rope_kv){.n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = DIM});
    s.ops->attention(s.d, o, qkv, QKV, kv, 1, &a);
    if (s.ops->step_end(s.d, &e))
        fail_msg("%s", e.msg);
    down(s, out->o + first * OUT, o, (size_t)n * OUT * 4);
    down(s, out->top + first * tops, top, (size_t)n * tops * 4);
    s.ops->free(s.d, qkv), s.ops->free(s.d, k), s.ops->free(s.d, q);
    s.ops->free(s.d, w), s.ops->free(s.d, rope);
}

static const struct kv_layer layers[] = {
    {1, 48, 40, true, 24}, {KV_HEADS, DIM, DIM, false, INDEX}, {3, 80, 80}};

static struct kv_cache *cache_of(struct side s, enum kv_dtype t)
{
    struct err e = ERR_INIT;
    const struct kv_desc kd = {3, N_BLOCKS, BLOCK, t, {0}, layers};
    struct kv_cache *kv = s.ops->kv_new(s.d, &kd, &e);
    if (!kv)
        fail_msg("%s", e.msg);
    return kv;
}

/* All blocks through host memory into another cache. */
static struct kv_cache *swapped(struct side s, struct kv_cache *kv, enum kv_dtype t)
{
    struct err e = ERR_INIT;
    const struct kv_desc kd = {3, N_BLOCKS, BLOCK, t, {0}, layers};
    const size_t bytes = N_BLOCKS * s.ops->kv_block_bytes(&kd);
    uint32_t all[N_BLOCKS];
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        all[i] = i;
    void *host = s.ops->host_alloc(s.d, bytes, &e);
    struct kv_cache *other = cache_of(s, t);
    assert_non_null(host);
    assert_int_equal(s.ops->kv_read(s.d, kv, all, host, all, N_BLOCKS, &e), 0);
    assert_int_equal(s.ops->kv_write(s.d, other, all, host, all, N_BLOCKS, &e), 0);
    s.ops->kv_free(s.d, kv);
    s.ops->host_free(s.d, host, bytes);
    return other;
}

/* The layer in chunks of up to `most` tokens; from the middle on in another cache. */
static void run(struct side s, const struct inputs *c, enum kv_dtype t, struct how how,
                uint32_t most, struct result *out)
{
    struct kv_cache *kv = cache_of(s, t);
    bool moved = most == TOKENS;
    memset(out, 0, sizeof(*out));
    for (uint32_t at = 0, n; at < TOKENS; at += n) {
        n = most == TOKENS ? TOKENS : 1 + rng_below(&rng, most);
        n = n < TOKENS - at ? n : TOKENS - at;
        step(s, c, kv, at, n, how, out);
        if (!moved && at > TOKENS / 2)
            kv = swapped(s, kv, t), moved = true;
    }
    s.ops->kv_free(s.d, kv);
}

/* Scores that are almost equal may come in another order: then few tokens differ. */
static void compare(struct how how, const struct result *got, const struct result *want,
                    double bound)
{
    const uint32_t tops = tops_of(how);
    uint32_t others = 0;
    double d = 0, all = 0;
    for (uint32_t t = 0; t < TOKENS; t++) {
        if (t >= limit_of(how) && memcmp(got->top + t * tops, want->top + t * tops, tops * 4)) {
            others++;
            continue;
        }
        for (uint32_t i = t * OUT; i < (t + 1) * OUT; i++) {
            const double by = (double)got->o[i] - want->o[i];
            d += by * by, all += (double)want->o[i] * want->o[i];
        }
    }
    if (others > 2 || !(sqrt(d / all) < bound))
        fail_msg("%u tokens with another selection, error %g", others, sqrt(d / all));
}

TEST(it_selects_as_the_cpu)
{
    static const enum kv_dtype types[] = {KV_F32, KV_BF16, KV_I8};
    static struct result got, want, parts;
    for (uint32_t i = 0; i < 12; i++) {
        const struct how how = {i % 2, i >= 6};
        const enum kv_dtype t = types[i % 6 / 2];
        const uint32_t tops = tops_of(how), from = limit_of(how) * tops;
        struct inputs c;
        inputs_make(&c);
        struct side s = open_side(cpu, ~0ull), g = open_side(gpu, ~0ull);
        run(s, &c, t, how, TOKENS, &want);
        run(g, &c, t, how, TOKENS, &got);
        run(g, &c, t, how, 1 + i % 6 * 13, &parts);
        compare(how, &got, &want, 1e-5);
        assert_memory_equal(parts.o, got.o, sizeof(got.o));
        assert_memory_equal(parts.top + from, got.top + from, ((size_t)TOKENS * tops - from) * 4);
        close_side(s), close_side(g);
        inputs_free(&c);
    }
}

/* Of equal scores the lowest positions, and of one key that is better, that. */
TEST(equal_scores_go_to_lower_positions)
{
    static struct result got;
    struct inputs c;
    inputs_make(&c);
    memset(c.k, 0, (size_t)TOKENS * INDEX * 4);
    const uint32_t best = 200;
    for (uint32_t i = 0; i < (uint32_t)TOKENS * INDEX_HEADS; i++)
        c.weights[i] = 1;
    for (uint32_t i = 0; i < INDEX; i++)
        c.k[best * INDEX + i] = c.q[((size_t)TOKENS - 1) * INDEX_HEADS * INDEX + i];
    memset(c.rope, 0, (size_t)TOKENS * ROT * 4);
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t i = 0; i < ROT / 2; i++)
            c.rope[t * ROT + i] = 1;
    struct side g = open_side(gpu, ~0ull);
    run(g, &c, KV_F32, (struct how){false, false}, TOKENS, &got);
    const uint32_t *last = got.top + ((size_t)TOKENS - 1) * TOP;
    for (uint32_t i = 0; i < TOP - 1; i++)
        assert_int_equal(last[i], i);
    assert_int_equal(last[TOP - 1], best);
    close_side(g);
    inputs_free(&c);
}

int main(void) { return cuda_tests_run(); }
