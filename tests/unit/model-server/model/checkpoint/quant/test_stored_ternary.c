/* BitNet's numbers of -1, 0 and 1: four to a byte, plain, and masters that become them. */
#include "tests/unit/model-server/model/checkpoint/quant/stored_rig.h"

enum { ROWS = 72, COLS = 96 };

static void put_factor(float f)
{
    for (int o = 0; o < ROWS; o++)
        truth.scale[0][o] = f, truth.zero[0][o] = 1;
}

/* Codes 0 to 2, and the stored scale. */
static void make_ternary(struct rng *r, float scale, bool divides)
{
    make(r, ROWS, COLS, 0, 2, 0);
    for (int o = 0; o < ROWS; o++)
        for (int c = 0; c < COLS; c++)
            truth.code[o][c] %= 3;
    put_factor(divides ? 1.0f / scale : scale);
    memcpy(tensor(STORED_SCALES, "q.weight_scale", T_F32, 4, 1, 0), &scale, 4);
}

TEST(test_packed)
{
    struct rng r = rng_new();
    for (int i = 0; i < 4; i++) {
        struct stored how = {&stored_ternary, "bitnet", 2, 0, 0, 0, true};
        how.divides = i & 1;
        make_ternary(&r, 1.3f + (float)i, how.divides);
        uint8_t *q = tensor(STORED_CODES, "q.weight", T_U8, 1, ROWS / 4, COLS);
        for (int o = 0; o < ROWS; o++)
            for (int c = 0; c < COLS; c++)
                q[o % (ROWS / 4) * COLS + c] |= (uint8_t)(truth.code[o][c] << 2 * (o / (ROWS / 4)));
        assert_reads(&r, &how);
    }
}

static void put_plain(float by)
{
    uint8_t *q = tensor(STORED_CODES, "q.weight", T_F32, 4, ROWS, COLS);
    for (int o = 0; o < ROWS; o++)
        for (int c = 0; c < COLS; c++) {
            const float f = (float)(truth.code[o][c] - 1) * by;
            memcpy(q + (size_t)4 * (size_t)(o * COLS + c), &f, 4);
        }
}

TEST(test_plain)
{
    struct rng r = rng_new();
    const struct stored how = {&stored_ternary, "bitnet", 2, 0, 0, 0, true, .plain = true};
    make_ternary(&r, 0.7f, false);
    put_plain(1);
    assert_reads(&r, &how);
}

/* Masters of two magnitudes, so that the mean is known. */
TEST(test_masters)
{
    static const float of[] = {-3, -0.3f, 0.3f, 3};
    static const int code[] = {0, 1, 1, 2};
    struct rng r = rng_new();
    const struct stored how = {&stored_ternary_masters, "bitnet", 2, 0, 0, 0, true, .plain = true};
    make(&r, ROWS, COLS, 0, 2, 0);
    uint8_t *q = tensor(STORED_CODES, "q.weight", T_F32, 4, ROWS, COLS);
    double sum = 0;
    for (int o = 0; o < ROWS; o++)
        for (int c = 0; c < COLS; c++) {
            const float f = of[truth.code[o][c]];
            memcpy(q + (size_t)4 * (size_t)(o * COLS + c), &f, 4);
            truth.code[o][c] = code[truth.code[o][c]];
            sum += f < 0 ? -(double)f : (double)f;
        }
    put_factor(1.0f / (1.0f / (float)(sum / (ROWS * COLS))));
    assert_reads(&r, &how);
}

TEST(test_refused)
{
    struct rng r = rng_new();
    struct stored_matrix m;
    struct err e = ERR_INIT;
    const struct stored how = {&stored_ternary, "bitnet", 2, 0, 0, 0, true};
    make_ternary(&r, 1, false);
    put_plain(1);
    assert_int_equal(stored_open(&m, &how, "q", ROWS, COLS, find, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "must be U8"));
    tensor(STORED_CODES, "q.weight", T_U8, 1, ROWS / 4, COLS);
    assert_int_equal(stored_open(&m, &how, "q", ROWS + 1, COLS, find, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "no multiple of 4"));
    assert_int_equal(stored_open(&m, &how, "q", ROWS, COLS + 1, find, NULL, &e), -1);
    tensor(STORED_SCALES, "q.weight_scale", T_F32, 4, 2, 0);
    assert_int_equal(stored_open(&m, &how, "q", ROWS, COLS, find, NULL, &e), -1);
}

int main(void) { return tests_run(NULL, NULL); }
