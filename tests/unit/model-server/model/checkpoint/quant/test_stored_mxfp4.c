/* MXFP4, matrices of several experts among them, as numbers. */
#include "tests/unit/model-server/model/checkpoint/quant/stored_rig.h"
#include <math.h>

/* e2m1 doubled is whole numbers, so that scales here are half of what is stored. */
static void put_mxfp4(struct rng *r, int experts, enum tensor_type scales)
{
    static const int doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const int rows = truth.rows, groups = truth.groups;
    uint8_t *q = tensor(STORED_CODES, "q_blocks", T_U8, 1, rows, truth.cols / 2);
    uint8_t *s = tensor(STORED_SCALES, "q_scales", scales, 1, rows, groups);
    for (int o = 0; o < rows; o++) {
        for (int c = 0; c < truth.cols; c++) {
            q[o * (truth.cols / 2) + c / 2] |= (uint8_t)(truth.code[o][c] << c % 2 * 4);
            truth.code[o][c] = doubled[truth.code[o][c]];
        }
        for (int g = 0; g < groups; g++) {
            int e = 106 + (int)rng_below(r, 30);
            s[o * groups + g] = (uint8_t)e;
            truth.scale[g][o] = ldexpf(1, e - 128);
        }
    }
    memset(truth.zero, 0, sizeof(truth.zero));
    tensors[STORED_CODES].n_dims = 4;
    memcpy(tensors[STORED_CODES].dims,
           (uint64_t[]){(uint64_t)experts, (uint64_t)(rows / experts), (uint64_t)groups, 16}, 32);
    tensors[STORED_SCALES].n_dims = 3;
    memcpy(tensors[STORED_SCALES].dims, tensors[STORED_CODES].dims, 24);
}

TEST(test_mxfp4)
{
    struct rng r = rng_new();
    struct stored_matrix m;
    struct err e = ERR_INIT;
    float row[32];
    const struct stored how = {&stored_mxfp4, "mxfp4", 4, 32, 1, 0, true, true};
    for (int i = 0; i < 4; i++) {
        make(&r, 72, 96, 32, 4, 0);
        put_mxfp4(&r, i ? 4 : 1, i & 1 ? T_U8 : T_F8_E8M0);
        assert_reads(&r, &how);
    }
    bytes[STORED_SCALES][1] = 255; /* NaN, in its group alone */
    bytes[STORED_SCALES][2] = 0;   /* 2^-127 */
    bytes[STORED_CODES][1 + 16] = 0x17;
    assert_int_equal(stored_open(&m, &how, "q", 72, 96, find, NULL, &e), 0);
    stored_numbers(&m, 0, 1, 31, 3, DT_F32, row, &(struct backend_ops){.name = "none"}, NULL);
    assert_true(isnan(row[0]) && row[1] == 6 * 0x1p-127F && row[2] == 0x1p-128F);
}

/* compressed-tensors' layout: the same bytes with other names and shapes. */
TEST(packed)
{
    struct rng r = rng_new();
    struct stored_matrix m;
    struct err e = ERR_INIT;
    const struct stored how = {&stored_mxfp4_packed, "compressed-tensors", 4, 32, 1, 0, true, true};
    n_kept = 0;
    for (int i = 0; i < 4; i++) {
        make(&r, 72, 96, 32, 4, 0);
        put_mxfp4(&r, 1, i & 1 ? T_U8 : T_F8_E8M0);
        tensors[STORED_CODES].name = "q.weight_packed";
        tensors[STORED_SCALES].name = "q.weight_scale";
        for (int k = 0; k < 2; k++)
            tensors[k].n_dims = 2, tensors[k].dims[0] = 72, tensors[k].dims[1] = k ? 3 : 48;
        assert_reads(&r, &how);
    }
    assert_true(n_kept > 0);
    tensors[STORED_SCALES].dims[1] = 4;
    assert_int_equal(stored_open(&m, &how, "q", 72, 96, find, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "w: tensor `q.weight_scale` has shape [72, 4]"));
}

int main(void) { return tests_run(NULL, NULL); }
