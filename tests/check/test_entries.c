/* test_entries.c - attention to entries beside a window on the CPU: against double precision, the
 * same bits on every instruction set, number of threads and cut of a prompt, for every type of
 * cache; entries move with their blocks; rotations back undo rotations. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <math.h>
#include <string.h>

/* Blocks have no whole number of entries; a token attends to more keys than a split. */
enum { HEADS = 5, DIM = 40, TOKENS = 700, WINDOW = 37, TOP = 21, AT = 12, ROT = 28 };
enum { BLOCK = 32, N_BLOCKS = TOKENS / BLOCK + 2 };

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

/* Inputs of one layer. */
struct layer_case {
    float *q, *keys, *entries, sinks[HEADS];
    uint32_t *top; /* [TOKENS, TOP]: of `chosen` */
    uint32_t every;
    bool chosen;
    enum kv_dtype dtype;
    uint32_t pos[TOKENS], slots[TOKENS], blocks[N_BLOCKS];
};

/* TOP of the complete entries of each token, ascending. */
static void choose(struct layer_case *c)
{
    for (uint32_t t = 0; t < TOKENS; t++) {
        const uint32_t all = (t + 1) / c->every;
        for (uint32_t i = 0, at = 0; all > TOP && i < TOP; i++, at++) {
            at += rng_below(&rng, all - TOP + i - at + 1);
            c->top[t * TOP + i] = at;
        }
    }
}

static void case_make(struct layer_case *c, uint32_t every, bool chosen, enum kv_dtype t)
{
    c->every = every, c->chosen = chosen, c->dtype = t;
    c->q = rng_floats(&rng, (size_t)TOKENS * HEADS * DIM);
    c->keys = rng_floats(&rng, (size_t)TOKENS * DIM);
    c->entries = rng_floats(&rng, (size_t)TOKENS * DIM);
    c->top = calloc((size_t)TOKENS * TOP, sizeof(*c->top));
    for (uint32_t h = 0; h < HEADS; h++)
        c->sinks[h] = (float)h - 2;
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        c->blocks[i] = (i * 7 + 3) % N_BLOCKS;
    for (uint32_t at = 0; at < TOKENS; at++) {
        c->pos[at] = at;
        c->slots[at] = c->blocks[at / BLOCK] * BLOCK + at % BLOCK;
    }
    choose(c);
}

static void case_free(struct layer_case *c)
{
    free(c->q), free(c->keys), free(c->entries), free(c->top);
}

static struct kv_cache *cache_of(struct device *d, const struct layer_case *c)
{
    struct err e = ERR_INIT;
    const struct kv_layer layers[] = {
        {2, 16, 16, false},
        {1, DIM, DIM, .latent = true, .index_dim = 24, .every = c->every},
        {1, 16, 16, false},
    };
    struct kv_cache *kv =
        ops->kv_new(d, &(struct kv_desc){3, 2 * N_BLOCKS, BLOCK, c->dtype, {0}, layers}, &e);
    assert_non_null(kv);
    return kv;
}

static void step(struct device *d, const struct layer_case *c, struct kv_cache *kv,
                 const uint32_t *blocks, uint32_t first, uint32_t n, float *out)
{
    struct err e = ERR_INIT;
    const size_t at = first;
    const struct span span = {.n = n, .kv_len = first + n, .blocks = blocks};
    const struct ragged b = {.n_tokens = n,
                             .n_spans = 1,
                             .pos = c->pos + first,
                             .slots = c->slots + first,
                             .spans = &span};
    assert_int_equal(ops->step_begin(d, &b, &e), 0);
    if (blocks == c->blocks) {
        ops->keep(d, kv, 1, c->keys + at * DIM, false);
        ops->keep(d, kv, 1, c->entries + at * DIM, true);
    }
    ops->attention(d, out + at * HEADS * DIM, c->q + at * HEADS * DIM, HEADS * DIM, kv, 1,
                   &(struct attn){.n_heads = HEADS,
                                  .n_kv_heads = 1,
                                  .head_dim = DIM,
                                  .scale = 0.2F,
                                  .window = WINDOW,
                                  .sinks = c->sinks,
                                  .entries = c->every,
                                  .top = c->chosen ? c->top + at * TOP : NULL,
                                  .n_top = c->chosen ? TOP : 0});
    if (ops->step_end(d, &e))
        fail_msg("%s", e.msg);
}

/* In chunks of up to `most` tokens. */
static float *run(const struct layer_case *c, int threads, uint64_t features, uint32_t most)
{
    struct device *d = device(threads, features);
    struct kv_cache *kv = cache_of(d, c);
    float *out = calloc((size_t)TOKENS * HEADS * DIM, sizeof(*out));
    for (uint32_t at = 0, n; at < TOKENS; at += n) {
        n = most == TOKENS ? TOKENS : 1 + rng_below(&rng, most);
        n = n < TOKENS - at ? n : TOKENS - at;
        step(d, c, kv, c->blocks, at, n, out);
    }
    ops->kv_free(d, kv);
    ops->close(d);
    return out;
}

/* ---------------------------------------------------------------- double precision */

static bool sees_entry(const struct layer_case *c, uint32_t t, uint32_t entry)
{
    const uint32_t all = (t + 1) / c->every;
    if (!c->chosen || all <= TOP)
        return entry < all;
    for (uint32_t i = 0; i < TOP; i++)
        if (c->top[t * TOP + i] == entry)
            return true;
    return false;
}

static void add_key(const float *q, const float *k, double *sum, double *all)
{
    double p = 0;
    for (uint32_t i = 0; i < DIM; i++)
        p += 0.2F * (double)q[i] * k[i];
    *all += p = exp(p);
    for (uint32_t i = 0; i < DIM; i++)
        sum[i] += p * k[i];
}

static void check_row(const struct layer_case *c, uint32_t t, uint32_t h, const float *got)
{
    const float *q = c->q + ((size_t)t * HEADS + h) * DIM;
    double sum[DIM] = {0}, all = exp((double)c->sinks[h]);
    for (uint32_t i = 0; (i + 1) * c->every <= t + 1; i++)
        if (sees_entry(c, t, i))
            add_key(q, c->entries + ((size_t)(i + 1) * c->every - 1) * DIM, sum, &all);
    for (uint32_t k = t + 1 > WINDOW ? t + 1 - WINDOW : 0; k <= t; k++)
        add_key(q, c->keys + (size_t)k * DIM, sum, &all);
    for (uint32_t i = 0; i < DIM; i++)
        if (!(fabs(got[i] - sum[i] / all) < 1e-4))
            fail_msg("token %u, head %u: [%u] = %g, not %g", t, h, i, got[i], sum[i] / all);
}

TEST(agrees_with_double_precision)
{
    static const uint32_t every[] = {1, 2, 4, 10, 32, 50};
    for (size_t i = 0; i < sizeof(every) / sizeof(*every); i++)
        for (int chosen = 0; chosen < 2; chosen++) {
            struct layer_case c;
            case_make(&c, every[i], chosen, KV_F32);
            float *o = run(&c, 2, ~0ull, TOKENS);
            for (uint32_t t = 0; t < TOKENS; t += t < 60 ? 1 : 13)
                for (uint32_t h = 0; h < HEADS; h++)
                    check_row(&c, t, h, o + ((size_t)t * HEADS + h) * DIM);
            free(o);
            case_free(&c);
        }
}

/* ---------------------------------------------------------------- bits */

TEST(the_same_bits_however_it_is_computed)
{
    for (int type = 0; type < KV_N; type++) {
        struct layer_case c;
        case_make(&c, type % 2 ? 10 : 4, type % 3, (enum kv_dtype)type);
        float *want = run(&c, 1, 0, TOKENS);
        const struct {
            int threads;
            uint64_t features;
            uint32_t most;
        } ways[] = {
            {2, 0, 90}, {1, ~(uint64_t)CPU_AMX_BF16, TOKENS}, {2, ~(uint64_t)CPU_AMX_BF16, 40}};
        for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
            float *got = run(&c, ways[i].threads, ways[i].features, ways[i].most);
            if (memcmp(got, want, (size_t)TOKENS * HEADS * DIM * sizeof(*got)) != 0)
                fail_msg("cache type %d, way %zu: other bits", type, i);
            free(got);
        }
        free(want);
        case_free(&c);
    }
}

/* Blocks that were copied, and swapped out and in again. */
TEST(entries_move_with_their_blocks)
{
    struct err e = ERR_INIT;
    struct layer_case c;
    uint32_t moved[N_BLOCKS], slots[N_BLOCKS];
    case_make(&c, 10, false, KV_BF16);
    struct device *d = device(2, ~0ull);
    struct kv_cache *kv = cache_of(d, &c);
    const struct kv_layer layers[] = {
        {2, 16, 16, false},
        {1, DIM, DIM, .latent = true, .index_dim = 24, .every = c.every},
        {1, 16, 16, false},
    };
    const size_t bytes =
        N_BLOCKS * ops->kv_block_bytes(&(struct kv_desc){3, 1, BLOCK, c.dtype, {0}, layers});
    void *host = ops->host_alloc(d, bytes, &e);
    const size_t n = (size_t)TOKENS * HEADS * DIM;
    float *want = calloc(n, sizeof(*want)), *got = calloc(n, sizeof(*got));
    step(d, &c, kv, c.blocks, 0, TOKENS, want);
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        moved[i] = N_BLOCKS + (i * 5 + 1) % N_BLOCKS, slots[i] = N_BLOCKS - 1 - i;
    assert_int_equal(ops->kv_copy(d, kv, c.blocks, moved, N_BLOCKS, &e), 0);
    step(d, &c, kv, moved, 0, TOKENS, got);
    assert_memory_equal(got, want, n * sizeof(*got));
    assert_int_equal(ops->kv_read(d, kv, c.blocks, host, slots, N_BLOCKS, &e), 0);
    memset(got, 0, n * sizeof(*got));
    assert_int_equal(ops->kv_copy(d, kv, moved + 1, moved, N_BLOCKS - 1, &e), 0);
    assert_int_equal(ops->kv_write(d, kv, moved, host, slots, N_BLOCKS, &e), 0);
    step(d, &c, kv, moved, 0, TOKENS, got);
    assert_memory_equal(got, want, n * sizeof(*got));
    ops->host_free(d, host, bytes);
    ops->kv_free(d, kv);
    ops->close(d);
    free(want), free(got);
    case_free(&c);
}

/* ---------------------------------------------------------------- rotations */

TEST(rotations_are_undone)
{
    enum { ROWS = 9 };
    struct err e = ERR_INIT;
    struct device *d = device(1, ~0ull);
    uint32_t zero[ROWS] = {0};
    const struct span span = {.n = ROWS, .kv_len = ROWS, .blocks = zero};
    const struct ragged b = {
        .n_tokens = ROWS, .n_spans = 1, .pos = zero, .slots = zero, .spans = &span};
    float *x = rng_floats(&rng, ROWS * HEADS * DIM), rope[ROWS * ROT];
    float y[ROWS * HEADS * DIM];
    for (uint32_t i = 0; i < ROWS * ROT; i++) {
        const double angle = (double)(i / ROT) * pow(10, -(double)(i % (ROT / 2)) / ROT);
        rope[i] = (float)(i % ROT < ROT / 2 ? cos(angle) : sin(angle));
    }
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        struct turn p = {HEADS, DIM, AT, ROT, interleaved, false, rope};
        memcpy(y, x, sizeof(y));
        assert_int_equal(ops->step_begin(d, &b, &e), 0);
        ops->turn(d, y, &p);
        assert_int_equal(ops->step_end(d, &e), 0);
        for (uint32_t i = 0; i < ROWS * HEADS * DIM; i++) {
            const uint32_t at = i % DIM - AT, t = i / DIM / HEADS, half = ROT / 2;
            if (i % DIM < AT) {
                assert_true(y[i] == x[i]);
                continue;
            }
            const uint32_t pair = interleaved ? at / 2 : at % half;
            const bool second = interleaved ? at % 2 : at >= half;
            const uint32_t far = interleaved ? 1 : half;
            const double a = x[second ? i - far : i], c = x[second ? i : i + far];
            const double cosine = rope[t * ROT + pair], sine = rope[t * ROT + half + pair];
            const double want = second ? c * cosine + a * sine : a * cosine - c * sine;
            assert_true(fabs(y[i] - want) < 1e-5);
        }
        p.back = true;
        assert_int_equal(ops->step_begin(d, &b, &e), 0);
        ops->turn(d, y, &p);
        assert_int_equal(ops->step_end(d, &e), 0);
        for (uint32_t i = 0; i < ROWS * HEADS * DIM; i++)
            assert_true(fabsf(y[i] - x[i]) < 1e-5F);
    }
    free(x);
    ops->close(d);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
