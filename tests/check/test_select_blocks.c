/* test_select_blocks.c - block-sparse attention on the CPU: which blocks each key-value head
 * selects and what its heads attend to, against double precision; the same bits on every
 * instruction set, number of threads and cut of a prompt; up to the first selection those of plain
 * attention. */
#include "tests/check/select_rig.h"

/* A block that is no multiple of a page */
enum { KV_HEADS = 3, UNIT = 23, TOP = 9, LOCAL = 2, LIMIT = UNIT * TOP };
enum { QKV = (HEADS + 2 * KV_HEADS) * DIM, SETS = KV_HEADS * TOP };
static const struct kv_layer layers[] = {{KV_HEADS, DIM, DIM, false, INDEX}};
static const struct select_kind kind = {.kv_heads = KV_HEADS,
                                        .index_heads = KV_HEADS,
                                        .sets = KV_HEADS,
                                        .top = TOP,
                                        .block = UNIT,
                                        .local = LOCAL,
                                        .n_layers = 1,
                                        .layers = layers};

/* ---------------------------------------------------------------- in double precision */

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

TEST(agrees_with_double_precision)
{
    struct layer_case c;
    case_make(&c, &kind, KV_F32);
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

TEST(the_same_bits_however_it_is_computed) { check_same_bits(&kind); }

TEST(up_to_the_limit_it_is_plain_attention)
{
    check_plain_attention(&kind, TOKENS / UNIT + 1, LIMIT);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
