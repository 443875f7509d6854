/* test_select.c - sparse attention on the CPU: which positions the indexer selects, against double
 * precision and, with equal scores, exactly; attention to them; the same bits on every instruction
 * set, number of threads and cut of a prompt; up to `top` positions those of plain attention. */
#include "model-server/backend/cpu/cpu.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <math.h>
#include <string.h>

/* More index heads than a tile has rows, more keys than two splits, a last page that is not full */
enum { HEADS = 6, KV_HEADS = 2, DIM = 32, INDEX_HEADS = 19, INDEX = 24, ROT = 16 };
enum { TOKENS = 600, TOP = 300, BLOCK = 32, N_BLOCKS = TOKENS / BLOCK + 2 };
enum { QKV = (HEADS + 2 * KV_HEADS) * DIM };

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

/* Inputs of one layer. */
struct layer_case {
    float *qkv, *q, *k, *weights, *rope;
    uint32_t pos[TOKENS], slots[TOKENS], blocks[N_BLOCKS];
    enum kv_dtype dtype;
    uint32_t top; /* 0: attention to all */
    bool turns;
    uint8_t squares; /* parts in which attention multiplies in squares; 0: on vectors */
};

struct result {
    float *o;      /* [TOKENS, HEADS * DIM] */
    uint32_t *top; /* [TOKENS, top] */
};

static void case_make(struct layer_case *c, enum kv_dtype t)
{
    *c = (struct layer_case){.dtype = t, .top = TOP, .turns = true};
    c->qkv = rng_floats(&rng, (size_t)TOKENS * QKV);
    c->q = rng_floats(&rng, (size_t)TOKENS * INDEX_HEADS * INDEX);
    c->k = rng_floats(&rng, (size_t)TOKENS * INDEX);
    c->weights = rng_floats(&rng, (size_t)TOKENS * INDEX_HEADS);
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
    const size_t at = first;
    const struct span span = {0, n, first + n, c->blocks};
    const struct ragged b = {.n_tokens = n,
                             .n_spans = 1,
                             .pos = c->pos + first,
                             .slots = c->slots + first,
                             .spans = &span};
    float *qkv = copy(c->qkv + at * QKV, (size_t)n * QKV);
    float *q = copy(c->q + at * INDEX_HEADS * INDEX, (size_t)n * INDEX_HEADS * INDEX);
    float *k = copy(c->k + at * INDEX, (size_t)n * INDEX);
    uint32_t *top = c->top ? out->top + at * c->top : NULL;
    assert_int_equal(ops->step_begin(d, &b, &e), 0);
    if (top)
        ops->select_keys(d, top, q, k, kv, 1,
                         &(struct select_keys){.n_heads = INDEX_HEADS,
                                               .dim = INDEX,
                                               .rot_dim = ROT,
                                               .top = c->top,
                                               .rope = c->turns ? c->rope + at * ROT : NULL,
                                               .weights = c->weights + at * INDEX_HEADS});
    ops->rope_kv(d, qkv, kv, 1,
                 &(struct rope_kv){.n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = DIM});
    ops->attention(d, out->o + at * HEADS * DIM, qkv, QKV, kv, 1,
                   &(struct attn){.n_heads = HEADS,
                                  .n_kv_heads = KV_HEADS,
                                  .head_dim = DIM,
                                  .scale = 0.3F,
                                  .top = top,
                                  .n_top = c->top});
    assert_int_equal(ops->step_end(d, &e), 0);
    free(qkv), free(q), free(k);
}

/* The whole layer in chunks of up to `most` tokens. */
static struct result run(const struct layer_case *c, int threads, uint64_t features, uint32_t most)
{
    static const struct kv_layer layers[] = {
        {1, 48, 40, true, 16}, {KV_HEADS, DIM, DIM, false, INDEX}, {3, 80, 80}};
    struct err e = ERR_INIT;
    struct device *d = device(threads, features);
    d->squares_kv = c->squares;
    const struct kv_desc kd = {3, N_BLOCKS, BLOCK, c->dtype, {0}, layers};
    struct kv_cache *kv = ops->kv_new(d, &kd, &e);
    struct result r = {.o = calloc((size_t)TOKENS * HEADS * DIM, sizeof(float)),
                       .top = calloc((size_t)TOKENS * (c->top ? c->top : 1), sizeof(uint32_t))};
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
    assert_memory_equal(a->top, b->top, (size_t)TOKENS * c->top * sizeof(uint32_t));
}

/* ---------------------------------------------------------------- in double precision */

/* x of a token, whose halves of the first ROT elements rotate. */
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

static double want_score(const struct layer_case *c, uint32_t token, uint32_t key)
{
    double k[INDEX], q[INDEX], all = 0;
    turned(c, key, c->k + (size_t)key * INDEX, k);
    for (uint32_t h = 0; h < INDEX_HEADS; h++) {
        const size_t at = (size_t)token * INDEX_HEADS + h;
        double s = 0;
        turned(c, token, c->q + at * INDEX, q);
        for (uint32_t i = 0; i < INDEX; i++)
            s += q[i] * k[i];
        all += s > 0 ? c->weights[at] * s : 0;
    }
    return all;
}

/* The selected positions ascend, and none that is left out has a higher score. */
static void check_selection(const struct layer_case *c, uint32_t token, const uint32_t *top)
{
    bool taken[TOKENS] = {false};
    double least = INFINITY, most = -INFINITY;
    for (uint32_t i = 0; i < c->top; i++) {
        assert_true(top[i] <= token && (i == 0 || top[i] > top[i - 1]));
        taken[top[i]] = true;
    }
    for (uint32_t k = 0; k <= token; k++) {
        const double s = want_score(c, token, k);
        least = taken[k] && s < least ? s : least;
        most = !taken[k] && s > most ? s : most;
    }
    if (!(least > most - 1e-4))
        fail_msg("token %u: a score of %g is selected, one of %g is not", token, least, most);
}

static void check_sum(const struct layer_case *c, uint32_t token, uint32_t head,
                      const uint32_t *top, const float *got)
{
    const float *q = c->qkv + (size_t)token * QKV + (size_t)head * DIM;
    const size_t k_at = (HEADS + head / (HEADS / KV_HEADS)) * (size_t)DIM;
    const uint32_t n = token < c->top ? token + 1 : c->top;
    double p[TOKENS], sum[DIM] = {0}, all = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t key = n <= token ? top[i] : i;
        p[i] = 0;
        for (uint32_t k = 0; k < DIM; k++)
            p[i] += 0.3F * (double)q[k] * c->qkv[(size_t)key * QKV + k_at + k];
        all += p[i] = exp(p[i]);
        for (uint32_t k = 0; k < DIM; k++)
            sum[k] += p[i] * c->qkv[(size_t)key * QKV + k_at + KV_HEADS * (size_t)DIM + k];
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
    for (uint32_t t = 0; t < TOKENS; t += t < TOP - 1 ? 23 : t < TOP + 2 ? 1 : 17) {
        const uint32_t *top = r.top + (size_t)t * TOP;
        if (t >= TOP)
            check_selection(&c, t, top);
        for (uint32_t h = 0; h < HEADS; h++)
            check_sum(&c, t, h, top, r.o + ((size_t)t * HEADS + h) * DIM);
    }
    result_free(&r);
    case_free(&c);
}

/* Scores of small integers are exact, and many are equal: the first of these are selected. */
static void equal_scores_go_to_lower_positions(void **state)
{
    struct layer_case c;
    (void)state;
    case_make(&c, KV_F32);
    c.turns = false;
    for (size_t i = 0; i < (size_t)TOKENS * INDEX_HEADS * INDEX; i++)
        c.q[i] = (float)rng_below(&rng, 2);
    for (size_t i = 0; i < (size_t)TOKENS * INDEX; i++)
        c.k[i] = (float)rng_below(&rng, 3) - 1;
    for (size_t i = 0; i < (size_t)TOKENS * INDEX_HEADS; i++)
        c.weights[i] = i / INDEX_HEADS % 5 ? (float)rng_below(&rng, 3) - 1 : 0;
    struct result r = run(&c, 2, ~0ull, 100);
    for (uint32_t t = TOP; t < TOKENS; t += 11) {
        double score[TOKENS];
        const uint32_t *top = r.top + (size_t)t * TOP;
        uint32_t n = 0;
        for (uint32_t k = 0; k <= t; k++)
            score[k] = want_score(&c, t, k);
        for (uint32_t k = 0; k <= t; k++) { /* selected: fewer than TOP others come before it */
            uint32_t before = 0;
            for (uint32_t o = 0; o <= t; o++)
                before += score[o] > score[k] || (score[o] == score[k] && o < k);
            if (before < TOP)
                assert_int_equal(top[n++], k);
        }
        assert_int_equal(n, TOP);
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
            assert_same(&c, &whole, &parts);
            result_free(&whole), result_free(&parts);
        }
        case_free(&c);
    }
}

/* Where everything is selected, and before a selection begins. */
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
        c.top = TOKENS;
        struct result all = run(&c, 2, ~0ull, TOKENS);
        const size_t row = (size_t)HEADS * DIM * sizeof(float);
        assert_memory_equal(all.o, plain.o, TOKENS * row);
        assert_memory_equal(some.o, plain.o, TOP * row);
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
        cmocka_unit_test(equal_scores_go_to_lower_positions),
        cmocka_unit_test(the_same_bits_however_it_is_computed),
        cmocka_unit_test(up_to_the_limit_it_is_plain_attention),
    };
    return cmocka_run_group_tests_name("select", tests, NULL, NULL);
}
