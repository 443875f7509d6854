/* test_select_pools.c - sparse attention by pools of positions on the CPU: keys of pools against
 * double precision, whatever the cut of a prompt; which pools a token selects and what it attends
 * to; the same bits on every instruction set, number of threads and cut; up to the first selection
 * those of plain attention. */
#include "tests/check/select_rig.h"

/* A pool that is no multiple of a page */
enum { POOL = 11, TOP = 9, INDEX_HEADS = 13, LIMIT = POOL * TOP - 1 };
static const struct kv_layer layers[] = {{1, DIM, DIM, false, INDEX}};
static const struct select_kind kind = {.kv_heads = 1,
                                        .index_heads = INDEX_HEADS,
                                        .sets = 1,
                                        .top = TOP,
                                        .block = POOL,
                                        .pooled = true,
                                        .weighted = true,
                                        .n_layers = 1,
                                        .layers = layers};

/* One selection for several key-value heads, by heads of equal weight. */
static const struct kv_layer grouped_layers[] = {{3, DIM, DIM, false, INDEX}};
static const struct select_kind grouped = {.kv_heads = 3,
                                           .index_heads = INDEX_HEADS,
                                           .sets = 1,
                                           .top = TOP,
                                           .block = POOL,
                                           .pooled = true,
                                           .n_layers = 1,
                                           .layers = grouped_layers};

/* ---------------------------------------------------------------- selections */

/* The score of a complete pool: that of its last key. */
static double want_score(const struct layer_case *c, uint32_t token, uint32_t pool)
{
    const uint32_t last = (pool + 1) * POOL - 1;
    double k[INDEX], q[INDEX], score = 0;
    turned(c, last, c->k + (size_t)last * INDEX, k);
    for (uint32_t h = 0; h < INDEX_HEADS; h++) {
        const size_t at = (size_t)token * INDEX_HEADS + h;
        double s = 0;
        turned(c, token, c->q + at * INDEX, q);
        for (uint32_t i = 0; i < INDEX; i++)
            s += q[i] * k[i];
        score += (c->weights ? c->weights[at] : 1) * fmax(s, 0);
    }
    return score;
}

/* *n: how many pools a token attends to, the one that is not complete among them. */
static void check_selection(const struct layer_case *c, uint32_t token, const uint32_t *top,
                            uint32_t *n)
{
    const uint32_t complete = (token + 1) / POOL, tail = (token + 1) % POOL;
    bool taken[TOKENS / POOL + 2] = {false};
    double least = INFINITY, most = -INFINITY;
    *n = TOP - (tail == 0);
    for (uint32_t i = 0; i < *n; i++) {
        assert_true(top[i] < complete + (tail > 0) && (i == 0 || top[i] > top[i - 1]));
        taken[top[i]] = true;
    }
    assert_true(!tail || taken[complete]);
    for (uint32_t b = 0; b < complete; b++) {
        const double s = want_score(c, token, b);
        least = taken[b] && s < least ? s : least;
        most = !taken[b] && s > most ? s : most;
    }
    if (!(least > most - 1e-3))
        fail_msg("token %u: a score of %g is selected, one of %g is not", token, least, most);
}

static void check_sum(const struct layer_case *c, uint32_t token, uint32_t head,
                      const uint32_t *top, uint32_t n, const float *got)
{
    const size_t width = qkv_width(c->of), kv = head / (HEADS / c->of->kv_heads);
    const float *q = c->qkv + token * width + (size_t)head * DIM;
    double sum[DIM] = {0}, all = 0;
    for (uint32_t key = 0, i = 0; key <= token; key++) {
        while (top && i < n && top[i] < key / POOL)
            i++;
        if (top && (i == n || top[i] != key / POOL))
            continue;
        const float *k = c->qkv + key * width + (HEADS + kv) * DIM;
        const float *v = k + (size_t)c->of->kv_heads * DIM;
        double p = 0;
        for (uint32_t d = 0; d < DIM; d++)
            p += 0.3F * (double)q[d] * k[d];
        all += p = exp(p);
        for (uint32_t d = 0; d < DIM; d++)
            sum[d] += p * v[d];
    }
    for (uint32_t d = 0; d < DIM; d++)
        if (!(fabs(got[d] - sum[d] / all) < 1e-4))
            fail_msg("token %u, head %u: [%u] = %g, not %g", token, head, d, got[d], sum[d] / all);
}

static void check_numbers(const struct select_kind *of)
{
    struct layer_case c;
    case_make(&c, of, KV_F32);
    struct result r = run(&c, 2, ~0ull, TOKENS);
    for (uint32_t t = 0; t < TOKENS; t += t < LIMIT - 1 ? 23 : t < LIMIT + POOL + 2 ? 1 : 13) {
        const uint32_t *top = t >= LIMIT ? r.top + (size_t)t * TOP : NULL;
        uint32_t n = 0;
        if (top)
            check_selection(&c, t, top, &n);
        for (uint32_t h = 0; h < HEADS; h++)
            check_sum(&c, t, h, top, n, r.o + ((size_t)t * HEADS + h) * DIM);
    }
    result_free(&r);
    case_free(&c);
}

TEST(agrees_with_double_precision)
{
    check_numbers(&kind);
    check_numbers(&grouped);
}

TEST(the_same_bits_however_it_is_computed)
{
    check_same_bits(&kind);
    check_same_bits(&grouped);
}

TEST(up_to_the_limit_it_is_plain_attention)
{
    check_plain_attention(&kind, TOKENS / POOL + 2, LIMIT);
    check_plain_attention(&grouped, TOKENS / POOL + 2, LIMIT);
}

/* ---------------------------------------------------------------- keys of pools */

enum { WIDE = 150, LONG = 97, SIZE = 16 };

/* One sequence in chunks of up to `most` tokens, in two cells that take turns. */
static float *pooled(const float *k, const float *gates, const float *bias, uint32_t series,
                     uint32_t most, uint64_t features)
{
    struct err e = ERR_INIT;
    struct device *d = device(2, features);
    struct pool_keys p = {.dim = WIDE, .size = SIZE, .series = series, .bias = bias};
    float *out = calloc((size_t)LONG * WIDE, sizeof(float));
    float *cells = calloc(2, pool_floats(&p) * sizeof(float));
    const struct state_ref state = {cells, pool_floats(&p)};
    uint32_t zero = 0, pos[LONG] = {0}, slots[LONG] = {0};
    for (uint32_t at = 0, n, step = 0; at < LONG; at += n, step++) {
        n = most == LONG ? LONG : 1 + rng_below(&rng, most);
        n = n < LONG - at ? n : LONG - at;
        const struct span span = {.n = n,
                                  .kv_len = at + n,
                                  .blocks = &zero,
                                  .state_in = step % 2,
                                  .state_out = 1 - step % 2};
        const struct ragged b = {
            .n_tokens = n, .n_spans = 1, .pos = pos, .slots = slots, .spans = &span};
        p.x = k + (size_t)at * series * WIDE;
        p.gates = gates ? gates + (size_t)at * series * WIDE : NULL;
        assert_int_equal(ops->step_begin(d, &b, &e), 0);
        ops->pool_keys(d, out + (size_t)at * WIDE, &state, &p);
        assert_int_equal(ops->step_end(d, &e), 0);
    }
    free(cells);
    ops->close(d);
    return out;
}

/* Number i of the key of the pool that ends at token t, over its own tokens, and with two series
 * over those of the pool before. */
static double pooled_number(const float *k, const float *gates, const float *bias, uint32_t series,
                            uint32_t t, uint32_t i)
{
    const uint32_t n = series * SIZE <= t + 1 ? series * SIZE : SIZE, wide = series * WIDE;
    double sum = 0, all = 0;
    if (t % SIZE != SIZE - 1)
        return 0;
    for (uint32_t j = 0; j < n; j++) {
        const uint32_t at = t + 1 - n + j, own = series > 1 && j + SIZE >= n ? WIDE : 0;
        const double gate = gates ? gates[at * wide + own + i] : 0;
        const double w = exp(gate + (bias ? bias[at % SIZE * wide + own + i] : 0));
        sum += w * k[at * wide + own + i], all += w;
    }
    return sum / all;
}

static void check_pools(uint32_t series, bool gated, bool biased)
{
    const uint32_t n = series * LONG * WIDE;
    float *k = rng_floats(&rng, n), *gates = gated ? rng_floats(&rng, n) : NULL;
    float *bias = biased ? rng_floats(&rng, series * SIZE * WIDE) : NULL;
    for (uint32_t i = 0; gates && i < n; i++)
        gates[i] *= 2;
    float *whole = pooled(k, gates, bias, series, LONG, ~0ull);
    float *parts = pooled(k, gates, bias, series, 7, 0);
    assert_memory_equal(whole, parts, sizeof(float) * LONG * WIDE);
    for (uint32_t t = 0; t < LONG; t++)
        for (uint32_t i = 0; i < WIDE; i++)
            assert_true(fabs(whole[t * WIDE + i] - pooled_number(k, gates, bias, series, t, i)) <
                        1e-4);
    free(k), free(gates), free(bias), free(whole), free(parts);
}

TEST(keys_of_pools_are_weighted_sums)
{
    check_pools(1, true, true);
    check_pools(2, true, true);
}

/* Without biases it is a mean; a bias far below the first one leaves the first key. */
TEST(keys_of_pools_may_be_means_or_the_first)
{
    const uint32_t n = LONG * WIDE;
    float *k = rng_floats(&rng, n), *bias = calloc((size_t)SIZE * WIDE, sizeof(*bias));
    check_pools(1, false, false);
    check_pools(1, true, false);
    check_pools(2, false, true);
    for (uint32_t i = WIDE; i < SIZE * WIDE; i++)
        bias[i] = -1e30F;
    float *first = pooled(k, NULL, bias, 1, 5, ~0ull);
    for (uint32_t t = SIZE - 1; t < LONG; t += SIZE)
        assert_memory_equal(first + (size_t)t * WIDE, k + (size_t)(t + 1 - SIZE) * WIDE,
                            WIDE * sizeof(*k));
    free(k), free(bias), free(first);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
