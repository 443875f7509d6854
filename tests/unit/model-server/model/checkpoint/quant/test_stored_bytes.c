/* Formats with a byte for each number, times a scale of its row, group, block or all, as numbers.
 */
#include "tests/unit/model-server/model/checkpoint/quant/stored_rig.h"

/* One byte a number: truth.code is what the byte means, so zero points are 0. */
static void put_bytes(bool is_float)
{
    uint8_t *q =
        tensor(STORED_CODES, "q.weight", is_float ? T_F8_E4M3 : T_I8, 1, truth.rows, truth.cols);
    for (int o = 0; o < truth.rows; o++)
        for (int c = 0; c < truth.cols; c++) {
            int v = truth.code[o][c] - 128; /* e4m3 has the integers to 16 */
            v = is_float ? v / 8 : v;
            truth.code[o][c] = v;
            q[o * truth.cols + c] = is_float ? e4m3_of_f32((float)v) : (uint8_t)v;
        }
    memset(truth.zero, 0, sizeof(truth.zero));
}

static void test_scaled(void **state)
{
    struct rng r = rng_new();
    (void)state;
    for (int i = 0; i < 8; i++) {
        const bool is_float = i & 1, per_tensor = i & 2;
        const int group = !per_tensor && i & 4 ? 32 : 0;
        struct stored how = {&stored_scaled, "fp8", 8,    (uint32_t)group,
                             !per_tensor,    0,     true, is_float};
        make(&r, 70, 90, group, 8, 0);
        put_bytes(is_float);
        for (int o = 0; per_tensor && o < 70; o++)
            truth.scale[0][o] = truth.scale[0][0];
        put_scales("q.weight_scale", false);
        if (per_tensor)
            tensors[STORED_SCALES].n_dims = 0, tensors[STORED_SCALES].dims[0] = 0;
        assert_reads(&r, &how);
    }
}

static void test_blocks(void **state)
{
    struct rng r = rng_new();
    struct stored how = {&stored_scaled_inv, "fp8", 8, 64, 32, 0, true, true};
    (void)state;
    make(&r, 70, 130, 64, 8, 0); /* 3 blocks by 3, the last ones short */
    put_bytes(true);
    uint8_t *p = tensor(STORED_SCALES, "q.weight_scale_inv", T_F32, 4, 3, 3);
    for (int g = 0; g < 3; g++)
        for (int o = 0; o < 70; o++) {
            truth.scale[g][o] = truth.scale[g][o / 32 * 32];
            memcpy(p + 4 * (o / 32 * 3 + g), &truth.scale[g][o], 4);
        }
    assert_reads(&r, &how);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaled),
        cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
