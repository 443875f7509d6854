/* test_select.c - sparse attention on the CPU: which positions the indexer selects, against double
 * precision and, with equal scores, exactly; attention to them; the same bits on every instruction
 * set, number of threads and cut of a prompt; up to `top` positions those of plain attention. */
#include "tests/check/select_rig.h"

/* More index heads than a tile has rows */
enum { KV_HEADS = 2, INDEX_HEADS = 19, TOP = 300, QKV = (HEADS + 2 * KV_HEADS) * DIM };
static const struct kv_layer layers[] = {
    {1, 48, 40, true, 16}, {KV_HEADS, DIM, DIM, false, INDEX}, {3, 80, 80}};
static const struct select_kind kind = {.kv_heads = KV_HEADS,
                                        .index_heads = INDEX_HEADS,
                                        .sets = 1,
                                        .top = TOP,
                                        .weighted = true,
                                        .n_layers = 3,
                                        .layer = 1,
                                        .layers = layers};

/* ---------------------------------------------------------------- in double precision */

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

TEST(agrees_with_double_precision)
{
    struct layer_case c;
    case_make(&c, &kind, KV_F32);
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
TEST(equal_scores_go_to_lower_positions)
{
    struct layer_case c;
    case_make(&c, &kind, KV_F32);
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

TEST(the_same_bits_however_it_is_computed) { check_same_bits(&kind); }

TEST(up_to_the_limit_it_is_plain_attention) { check_plain_attention(&kind, TOKENS, TOP); }

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
