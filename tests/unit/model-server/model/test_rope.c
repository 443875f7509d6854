/* Rows of cosines and sines against the formulas, the kept table against fresh rows. */
#include "model-server/model/rope.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>

enum { DIM = 8, N = 6 };
static const uint32_t pos[N] = {0, 1, 7, 700, 131071, 4000000};

static void rows_at(const struct rope_spec *spec, uint32_t length, float out[N][DIM])
{
    struct rope r;
    const struct span span = {0, N, length, NULL, 0};
    const struct ragged b = {.n_tokens = N, .n_spans = 1, .pos = pos, .spans = &span};
    rope_init(&r, spec, 1000); /* the last two are beyond the table */
    rope_rows(&r, &b, &out[0][0]);
    float again[N][DIM];
    rope_rows(&r, &b, &again[0][0]); /* from the table */
    assert_memory_equal(out, again, sizeof(again));
    rope_free(&r);
}

static struct rope_spec plain(enum rope_kind kind)
{
    return (struct rope_spec){.kind = kind,
                              .dim = DIM,
                              .theta = 10000,
                              .attention_factor = 1,
                              .factor = 4,
                              .original = 64};
}

TEST(test_angles)
{
    struct rope_spec s = plain(ROPE_DEFAULT);
    float rows[N][DIM];
    s.attention_factor = 1.25;
    rows_at(&s, 1, rows);
    for (int i = 0; i < 4; i++) /* beyond, fp32 angles are off by more than this bound */
        for (int k = 0; k < DIM / 2; k++) {
            double angle = pos[i] * pow(10000, -2.0 * k / DIM);
            assert_float_equal(rows[i][k], 1.25 * cos(angle), 1e-4);
            assert_float_equal(rows[i][k + DIM / 2], 1.25 * sin(angle), 1e-4);
        }
    for (int i = 0; i < N; i++)
        for (int k = 0; k < DIM / 2; k++)
            assert_float_equal(hypotf(rows[i][k], rows[i][k + DIM / 2]), 1.25, 1e-5);
}

/* Linear: every frequency divided. Llama 3: the fastest kept, the slowest divided. Yarn alike. */
TEST(test_frequencies)
{
    float base[DIM / 2], inv[DIM / 2];
    struct rope_spec s = plain(ROPE_DEFAULT);
    rope_inv_freq(&s, 1, base);
    s = plain(ROPE_LINEAR);
    rope_inv_freq(&s, 1, inv);
    for (int k = 0; k < DIM / 2; k++)
        assert_float_equal(inv[k], base[k] / 4, 1e-7);
    s = plain(ROPE_LLAMA3);
    s.low_freq = 1, s.high_freq = 4;
    rope_inv_freq(&s, 1, inv);
    assert_true(inv[0] == base[0]);
    assert_float_equal(inv[DIM / 2 - 1], base[DIM / 2 - 1] / 4, 1e-7);
    s = plain(ROPE_YARN);
    s.beta_fast = 32, s.beta_slow = 1, s.truncate = true;
    rope_inv_freq(&s, 1, inv);
    assert_true(inv[0] == base[0]);
    assert_float_equal(inv[DIM / 2 - 1], base[DIM / 2 - 1] / 4, 1e-7);
}

/* The scalings that look at the length change at the original one, neither before nor at it. */
TEST(test_length)
{
    static const enum rope_kind kinds[] = {ROPE_DYNAMIC, ROPE_LONGROPE, ROPE_YARN};
    for (int i = 0; i < 3; i++) {
        struct rope_spec s = plain(kinds[i]);
        s.beta_fast = 32, s.beta_slow = 1;
        for (int k = 0; k < DIM / 2; k++)
            s.short_factor[k] = 1, s.long_factor[k] = 2;
        float one[N][DIM], at[N][DIM], beyond[N][DIM], further[N][DIM];
        rows_at(&s, 1, one);
        rows_at(&s, 64, at);
        rows_at(&s, 65, beyond);
        rows_at(&s, 66, further);
        assert_memory_equal(one, at, sizeof(at));
        assert_int_equal(memcmp(at, beyond, sizeof(at)) == 0, kinds[i] == ROPE_YARN);
        assert_int_equal(memcmp(beyond, further, sizeof(at)) == 0, kinds[i] != ROPE_DYNAMIC);
    }
}

TEST(test_by_length)
{
    for (int kind = ROPE_NONE; kind <= ROPE_LONGROPE; kind++) {
        struct rope_spec s = plain((enum rope_kind)kind);
        bool looks = kind == ROPE_DYNAMIC || kind == ROPE_LONGROPE;
        assert_int_equal(rope_by_length(&s, s.original + 1), looks);
        assert_int_equal(rope_by_length(&s, 0), looks);
        assert_false(rope_by_length(&s, s.original)); /* never gets there */
    }
}

int main(void) { return tests_run(NULL, NULL); }
