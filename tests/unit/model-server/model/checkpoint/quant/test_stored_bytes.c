/* Formats with a byte for each number, times a scale of its row, group, block or all, as numbers.
 */
#include "tests/unit/model-server/model/checkpoint/quant/stored_rig.h"
#include <math.h>

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

TEST(test_scaled)
{
    struct rng r = rng_new();
    n_kept = 0;
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
        if (group) /* 90 columns: the last group is short */
            continue;
        how.varies = true, how.group = 64, how.row_block = 8;
        assert_reads(&r, &how);
    }
    assert_int_equal(n_kept, 13); /* all but int8 in groups */
}

/* Blocks of which one covers a row, the last one short. */
TEST(one_block_across)
{
    struct rng r = rng_new();
    const struct stored how = {
        .format = &stored_mixed, .method = "ct", .group = 64, .row_block = 32, .varies = true};
    n_kept = 0;
    make(&r, 70, 60, 0, 8, 0);
    put_bytes(true);
    uint8_t *p = tensor(STORED_SCALES, "q.weight_scale", T_F32, 4, 3, 1);
    for (int o = 0; o < 70; o++) {
        truth.scale[0][o] = truth.scale[0][o / 32 * 32];
        memcpy(p + 4 * (o / 32), &truth.scale[0][o], 4);
    }
    assert_reads(&r, &how);
    assert_int_equal(n_kept, 1);
}

/* compressed-tensors with int8 in rows and fp8 in equal blocks, by the type of the codes. */
TEST(mixed)
{
    struct rng r = rng_new();
    const struct stored how = {.format = &stored_mixed, .method = "ct", .varies = true};
    struct stored_matrix m;
    struct err e = ERR_INIT;
    n_kept = 0;
    make(&r, 70, 90, 0, 8, 0);
    put_bytes(false);
    put_scales("q.weight_scale", false);
    assert_reads(&r, &how);
    make(&r, 64, 96, 32, 8, 0);
    put_bytes(true);
    uint8_t *p = tensor(STORED_SCALES, "q.weight_scale", T_F32, 4, 4, 3);
    for (int g = 0; g < 3; g++)
        for (int o = 0; o < 64; o++) {
            truth.scale[g][o] = truth.scale[g][o / 16 * 16];
            memcpy(p + 4 * (o / 16 * 3 + g), &truth.scale[g][o], 4);
        }
    assert_reads(&r, &how);
    tensors[STORED_SCALES].n_dims = 4; /* modelopt */
    tensors[STORED_SCALES].dims[1] = tensors[STORED_SCALES].dims[3] = 1;
    tensors[STORED_SCALES].dims[2] = 3;
    assert_reads(&r, &how);
    tensors[STORED_CODES].type = T_I16;
    assert_int_equal(stored_open(&m, &how, "q", 64, 96, find, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "`q.weight` has dtype I16; matrices stored by ct must be"));
    assert_int_equal(n_kept, 3);
}

TEST(test_blocks)
{
    struct rng r = rng_new();
    struct stored how = {&stored_scaled_inv, "fp8", 8, 64, 32, 0, true, true};
    n_kept = 0;
    make(&r, 70, 130, 64, 8, 0); /* 3 blocks by 3, the last ones short */
    put_bytes(true);
    uint8_t *p = tensor(STORED_SCALES, "q.weight_scale_inv", T_F32, 4, 3, 3);
    for (int g = 0; g < 3; g++)
        for (int o = 0; o < 70; o++) {
            truth.scale[g][o] = truth.scale[g][o / 32 * 32];
            memcpy(p + 4 * (o / 32 * 3 + g), &truth.scale[g][o], 4);
        }
    assert_reads(&r, &how);
    assert_int_equal(n_kept, 1);
}

/* Powers of two, for groups of a row and for blocks. Codes in int8 have no such scales. */
TEST(powers)
{
    struct rng r = rng_new();
    struct stored_matrix m;
    struct err e = ERR_INIT;
    struct stored how = {&stored_scaled_inv, "fp8", 8, 32, 0, 0, true, true};
    n_kept = 0;
    for (int i = 0; i < 4; i++) {
        const int block = i < 2 ? 1 : 32, blocks = (70 + block - 1) / block;
        how.row_block = (uint32_t)block;
        make(&r, 70, 90, 32, 8, 0);
        put_bytes(true);
        uint8_t *p = tensor(STORED_SCALES, "q.weight_scale_inv", i & 1 ? T_U8 : T_F8_E8M0, 1,
                            blocks, truth.groups);
        for (int g = 0; g < truth.groups; g++)
            for (int o = 0; o < 70; o++) {
                uint8_t *power = &p[o / block * truth.groups + g];
                *power = o % block ? *power : (uint8_t)(110 + rng_below(&r, 20));
                truth.scale[g][o] = ldexpf(1, *power - 127);
            }
        assert_reads(&r, &how);
    }
    how.is_float = false;
    tensors[STORED_CODES].type = T_I8;
    assert_int_equal(stored_open(&m, &how, "q", 70, 90, find, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "scales must be F32, F16 or BF16"));
    assert_int_equal(n_kept, 4);
}

int main(void) { return tests_run(NULL, NULL); }
