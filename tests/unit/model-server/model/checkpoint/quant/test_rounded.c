/* Numbers in 16 bits that are rounded to 8 or 6 when they are packed: the scale of each group is
 * the least that holds its greatest number, whatever the magnitude of the row. */
#include "tests/unit/model-server/model/checkpoint/quant/stored_rig.h"
#include <math.h>

enum { ROWS = 70, COLS = 128, GROUP = 32 };
static struct stored rounded = {
    .format = &stored_rounded, .method = "rounded", .row_block = 1, .keep = true};
static const uint32_t widths[] = {8, 6};
static float want[ROWS][COLS];

/* Row o has numbers of about 2^power. */
static void fill(struct rng *r, enum tensor_type type, int least, int most)
{
    memset(tensors, 0, sizeof(tensors));
    uint8_t *p = tensor(STORED_CODES, "q", type, 2, ROWS, COLS);
    for (int o = 0; o < ROWS; o++)
        for (int i = 0; i < COLS; i++) {
            const int power = least + o % (most - least + 1);
            const float v = ldexpf((float)rng_below(r, 2001) / 1000 - 1, power - i / GROUP);
            const uint16_t h = type == T_BF16 ? bf16_of_f32(v) : f16_of_f32(v);
            memcpy(p + (size_t)2 * (size_t)(o * COLS + i), &h, 2);
            want[o][i] = type == T_BF16 ? f32_of_bf16(h) : f32_of_f16(h);
        }
}

static bool codes_of(const struct stored_slice *s, struct mat_codes *c)
{
    const struct backend_ops ops = {.weight_takes = takes_all};
    struct stored_matrix m;
    struct err e = ERR_INIT;
    if (stored_open(&m, &rounded, "q", ROWS, COLS, find, NULL, &e))
        fail_msg("%s", e.msg);
    return stored_codes(&m, s, c, &ops, NULL);
}

static void assert_near(const struct stored_slice *s)
{
    struct mat_codes c;
    assert_true(codes_of(s, &c));
    assert_int_equal(c.format.bits, rounded.bits);
    const float halves = (float)((2u << (rounded.bits - 1)) - 2); /* of a step, to the greatest */
    for (int64_t i = 0; i < s->rows * s->cols; i += GROUP) {
        const float *x = &want[s->row + i / s->cols * s->step][s->col + i % s->cols];
        float top = 0;
        for (int k = 0; k < GROUP; k++)
            top = fmaxf(top, fabsf(x[k]));
        /* Half a step; scales have 11 bits, fewer where the group is far below its row. */
        const float off = top / halves * 1.01f + c.factor[i / s->cols] * 0x1p-18f;
        for (int k = 0; k < GROUP; k++) {
            const float got = number_kept(&c, i + k, s->cols);
            if (!(fabsf(got - x[k]) <= off))
                fail_msg("%lld: %g, not %g within %g", (long long)(i + k), (double)got,
                         (double)x[k], (double)off);
        }
    }
    free(c.codes);
}

TEST(test_near)
{
    static const struct stored_slice slices[] = {
        {0, ROWS, 1, 0, COLS}, {3, ROWS - 3, 1, 32, 64}, {1, 30, 2, 0, COLS}};
    struct rng r = rng_new();
    for (int i = 0; i < 6; i++) {
        rounded.bits = widths[i % 2];
        fill(&r, T_BF16, -40, 40);
        assert_near(&slices[i / 2]);
        fill(&r, T_BF16, 100, 127);
        assert_near(&slices[i / 2]);
        fill(&r, T_F16, -4, 15);
        assert_near(&slices[i / 2]);
    }
    memset(bytes[STORED_CODES], 0, sizeof(bytes[STORED_CODES]));
    memset(want, 0, sizeof(want));
    for (int i = 0; i < 2; i++) {
        rounded.bits = widths[i];
        assert_near(&slices[0]);
    }
}

/* Then the matrix stays as it is. */
TEST(test_not_finite)
{
    static const uint16_t bad[] = {0x7f80, 0xff80, 0x7fc0};
    struct rng r = rng_new();
    for (int i = 0; i < 3; i++) {
        struct mat_codes c;
        rounded.bits = widths[i % 2];
        fill(&r, T_BF16, 0, 0);
        memcpy(bytes[STORED_CODES] + 1 + (size_t)2 * (60 * COLS + 77), &bad[i], 2);
        assert_false(codes_of(&(struct stored_slice){0, ROWS, 1, 0, COLS}, &c));
        assert_true(codes_of(&(struct stored_slice){0, 60, 1, 0, COLS}, &c));
        free(c.codes);
    }
}

/* As numbers, if a device has no such product: exact. */
TEST(test_numbers)
{
    static float out[ROWS * COLS];
    struct rng r = rng_new();
    struct stored_matrix m;
    struct err e = ERR_INIT;
    fill(&r, T_BF16, -3, 3);
    assert_int_equal(stored_open(&m, &rounded, "q", ROWS, COLS, find, NULL, &e), 0);
    stored_numbers(&m, 0, ROWS, 0, COLS, DT_F32, out, &(struct backend_ops){.name = "none"}, NULL);
    assert_memory_equal(out, want, sizeof(out));
}

int main(void) { return tests_run(NULL, NULL); }
