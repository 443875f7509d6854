/* test_select_blocks.c - block-sparse attention on the CPU: which blocks each key-value head
 * selects and what its heads attend to, against double precision; the same bits on every
 * instruction set, number of threads and cut of a prompt; up to the first selection those of plain
 * attention. */
#include "model-server/backend/cpu/cpu.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <math.h>
#include <string.h>

/* A block that is no multiple of a page, more keys than two splits */
enum { HEADS = 6, KV_HEADS = 3, DIM = 32, INDEX = 24, ROT = 16, TOKENS = 600 };
enum { UNIT = 23, TOP = 9, LOCAL = 2, LIMIT = UNIT * TOP, BLOCK = 32 };
enum { N_BLOCKS = TOKENS / BLOCK + 2, QKV = (HEADS + 2 * KV_HEADS) * DIM, SETS = KV_HEADS * TOP };

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

struct layer_case {
    float *qkv, *q, *k, *rope;
    uint32_t pos[TOKENS], slots[TOKENS], blocks[N_BLOCKS];
    enum kv_dtype dtype;
    uint32_t top;    /* 0: attention to all */
    uint8_t squares; /* parts in which attention multiplies in squares; 0: on vectors */
};

struct result {
    float *o;      /* [TOKENS, HEADS * DIM] */
    uint32_t *top; /* [TOKENS, KV_HEADS, TOP] */
};

static void case_make(struct layer_case *c, enum kv_dtype t)
{
    *c = (struct layer_case){.dtype = t, .top = TOP};
    c->qkv = rng_floats(&rng, (size_t)TOKENS * QKV);
    c->q = rng_floats(&rng, (size_t)TOKENS * KV_HEADS * INDEX);
    c->k = rng_floats(&rng, (size_t)TOKENS * INDEX);
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

static void case_free(struct layer_case *c) { free(c->qkv), free(c->q), free(c->k), free(c->rope); }

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
    const size_t at = first;
    const struct span span = {0, n, first + n, c->blocks};
    const struct ragged b = {.n_tokens = n,
                             .n_spans = 1,
                             .pos = c->pos + first,
                             .slots = c->slots + first,
                             .spans = &span};
    float *qkv = copy(c->qkv + at * QKV, (size_t)n * QKV);
    float *q = copy(c->q + at * KV_HEADS * INDEX, (size_t)n * KV_HEADS * INDEX);
    float *k = copy(c->k + at * INDEX, (size_t)n * INDEX);
    uint32_t *top = c->top ? out->top + at * KV_HEADS * c->top : NULL;
    assert_int_equal(ops->step_begin(d, &b, &e), 0);
    if (top)
        ops->select_keys(d, top, q, k, kv, 0,
                         &(struct select_keys){.n_heads = KV_HEADS,
                                               .dim = INDEX,
                                               .rot_dim = ROT,
                                               .top = c->top,
                                               .block = UNIT,
                                               .local = LOCAL,
                                               .rope = c->rope + at * ROT});
    ops->rope_kv(d, qkv, kv, 0,
                 &(struct rope_kv){.n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = DIM});
    ops->attention(d, out->o + at * HEADS * DIM, qkv, QKV, kv, 0,
                   &(struct attn){.n_heads = HEADS,
                                  .n_kv_heads = KV_HEADS,
                                  .head_dim = DIM,
                                  .scale = 0.3F,
                                  .top = top,
                                  .n_top = c->top,
                                  .top_block = UNIT});
    assert_int_equal(ops->step_end(d, &e), 0);
    free(qkv), free(q), free(k);
}

/* The whole layer in chunks of up to `most` tokens. */
static struct result run(const struct layer_case *c, int threads, uint64_t features, uint32_t most)
{
    static const struct kv_layer layers[] = {{KV_HEADS, DIM, DIM, false, INDEX}};
    struct err e = ERR_INIT;
    struct device *d = device(threads, features);
    d->squares_kv = c->squares;
    const struct kv_desc kd = {1, N_BLOCKS, BLOCK, c->dtype, {0}, layers};
    struct kv_cache *kv = ops->kv_new(d, &kd, &e);
    struct result r = {
        .o = calloc((size_t)TOKENS * HEADS * DIM, sizeof(float)),
        .top = calloc((size_t)TOKENS * KV_HEADS * (c->top ? c->top : 1), sizeof(uint32_t))};
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

/* ---------------------------------------------------------------- in double precision */

/* x of a token, whose halves of the first ROT elements rotate. */
static void turned(const struct layer_case *c, uint32_t token, const float *x, double *y)
{
    const float *rope = c->rope + (size_t)token * ROT;
    for (uint32_t i = 0; i < INDEX; i++)
        y[i] = x[i];
    for (uint32_t i = 0; i < ROT / 2; i++) {
        const double co = rope[i], si = rope[ROT / 2 + i];
        y[i] = x[i] * co - x[i + ROT / 2] * si;
        y[i + ROT / 2] = x[i + ROT / 2] * co + x[i] * si;
    }
}

/* The greatest product of a query with a key of the block, up to the token. */
static double want_score(const struct layer_case *c, uint32_t token, uint32_t head, uint32_t block)
{
    double k[INDEX], q[INDEX], most = -INFINITY;
    turned(c, token, c->q + ((size_t)token * KV_HEADS + head) * INDEX, q);
    for (uint32_t at = block * UNIT; at <= token && at < (block + 1) * UNIT; at++) {
        double s = 0;
        turned(c, at, c->k + (size_t)at * INDEX, k);
        for (uint32_t i = 0; i < INDEX; i++)
            s += q[i] * k[i];
        most = s > most ? s : most;
    }
    return most;
}

/* The selected blocks ascend, the last ones among them, and of the others none that is left out has
 * a higher score. */
static void check_selection(const struct layer_case *c, uint32_t token, uint32_t head,
                            const uint32_t *top)
{
    const uint32_t own = token / UNIT;
    bool taken[TOKENS / UNIT + 1] = {false};
    double least = INFINITY, most = -INFINITY;
    for (uint32_t i = 0; i < TOP; i++) {
        assert_true(top[i] <= own && (i == 0 || top[i] > top[i - 1]));
        taken[top[i]] = true;
    }
    for (uint32_t i = 0; i < LOCAL; i++)
        assert_true(taken[own - i]);
    for (uint32_t b = 0; b + LOCAL <= own; b++) {
        const double s = want_score(c, token, head, b);
        least = taken[b] && s < least ? s : least;
        most = !taken[b] && s > most ? s : most;
    }
    if (!(least > most - 1e-4))
        fail_msg("token %u: a score of %g is selected, one of %g is not", token, least, most);
}

static void check_sum(const struct layer_case *c, uint32_t token, uint32_t head,
                      const uint32_t *top, const float *got)
{
    const float *q = c->qkv + (size_t)token * QKV + (size_t)head * DIM;
    const size_t k_at = (HEADS + head / (HEADS / KV_HEADS)) * (size_t)DIM;
    double sum[DIM] = {0}, all = 0;
    for (uint32_t key = 0, i = 0; key <= token; key++) {
        while (token >= LIMIT && i < TOP && top[i] < key / UNIT)
            i++;
        if (token >= LIMIT && (i == TOP || top[i] != key / UNIT))
            continue;
        double p = 0;
        for (uint32_t k = 0; k < DIM; k++)
            p += 0.3F * (double)q[k] * c->qkv[(size_t)key * QKV + k_at + k];
        all += p = exp(p);
        for (uint32_t k = 0; k < DIM; k++)
            sum[k] += p * c->qkv[(size_t)key * QKV + k_at + KV_HEADS * (size_t)DIM + k];
    }
    for (uint32_t k = 0; k < DIM; k++)
        if (!(fabs(got[k] - sum[k] / all) < 1e-4))
            fail_msg("token %u, head %u: [%u] = %g, not %g", token, head, k, got[k], sum[k] / all);
}

static void agrees_with_double_precision(void **state)
{
    struct layer_case c;
    (void)state;
    case_make(&c, KV_F32);
    struct result r = run(&c, 2, ~0ull, TOKENS);
    for (uint32_t t = 0; t < TOKENS; t += t < LIMIT - 1 ? 23 : t < LIMIT + 2 ? 1 : 13)
        for (uint32_t h = 0; h < HEADS; h++) {
            const uint32_t kv = h / (HEADS / KV_HEADS);
            const uint32_t *top = r.top + (size_t)t * SETS + (size_t)kv * TOP;
            if (t >= LIMIT)
                check_selection(&c, t, kv, top);
            check_sum(&c, t, h, top, r.o + ((size_t)t * HEADS + h) * DIM);
        }
    result_free(&r);
    case_free(&c);
}

static void the_same_bits_however_it_is_computed(void **state)
{
    static const struct {
        uint64_t whole, parts;
        int threads;
        uint32_t cut;
    } pairs[] = {{~0ull, CPU_AVX2, 1, TOKENS}, {~0ull, 0, 1, TOKENS}, {~0ull, ~0ull, 3, 41}};
    (void)state;
    for (enum kv_dtype t = 0; t < KV_N; t++) {
        struct layer_case c;
        case_make(&c, t);
        const size_t n = sizeof(pairs) / sizeof(pairs[0]), forms = t == KV_BF16 ? 2 : 1;
        for (size_t i = 0; i < n * forms; i++) {
            c.squares = i < n ? 0 : SQUARE_PARTS;
            struct result whole = run(&c, 1, pairs[i % n].whole, TOKENS);
            struct result parts =
                run(&c, pairs[i % n].threads, pairs[i % n].parts, pairs[i % n].cut);
            assert_memory_equal(whole.o, parts.o, (size_t)TOKENS * HEADS * DIM * sizeof(float));
            assert_memory_equal(whole.top, parts.top, (size_t)TOKENS * SETS * sizeof(uint32_t));
            result_free(&whole), result_free(&parts);
        }
        case_free(&c);
    }
}

/* Where all blocks are selected, and before a selection begins. */
static void up_to_the_limit_it_is_plain_attention(void **state)
{
    (void)state;
    for (enum kv_dtype t = 0; t < KV_N; t++) {
        struct layer_case c;
        case_make(&c, t);
        c.squares = t == KV_BF16 ? SQUARE_PARTS : 0;
        c.top = 0;
        struct result plain = run(&c, 2, ~0ull, TOKENS);
        c.top = TOP;
        struct result some = run(&c, 2, ~0ull, TOKENS);
        c.top = TOKENS / UNIT + 1;
        struct result all = run(&c, 2, ~0ull, TOKENS);
        const size_t row = (size_t)HEADS * DIM * sizeof(float);
        assert_memory_equal(all.o, plain.o, TOKENS * row);
        assert_memory_equal(some.o, plain.o, LIMIT * row);
        assert_true(memcmp(some.o, plain.o, TOKENS * row) != 0);
        result_free(&plain), result_free(&some), result_free(&all);
        case_free(&c);
    }
}

int main(void)
{
    rng = rng_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double_precision),
        cmocka_unit_test(the_same_bits_however_it_is_computed),
        cmocka_unit_test(up_to_the_limit_it_is_plain_attention),
    };
    return cmocka_run_group_tests_name("select blocks", tests, NULL, NULL);
}
