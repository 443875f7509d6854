/* Formats with several codes to a word of 32 bits, as numbers: GPTQ, AWQ, packed. */
#include "tests/unit/model-server/model/checkpoint/quant/stored_rig.h"

/* Code i of a string of them, bit after bit: of 3 bits some lie in two words. */
static void put_code(uint8_t *p, int first, int stride, int i, int bits, uint32_t code)
{
    for (int b = i * bits; b < (i + 1) * bits; b++, code >>= 1)
        put_u32(p, first + b / 32 * stride, (code & 1) << b % 32, true);
}

static void put_gptq(int bits, int bias, bool zeros)
{
    const int rows = truth.rows, words = rows * bits / 32;
    uint8_t *q = tensor(STORED_CODES, "q.qweight", T_I32, 4, truth.cols * bits / 32, rows);
    for (int c = 0; c < truth.cols; c++)
        for (int o = 0; o < rows; o++)
            put_code(q, o, rows, c, bits, (uint32_t)truth.code[o][c]);
    put_scales("q.scales", true);
    if (!zeros)
        return;
    uint8_t *z = tensor(STORED_ZEROS, "q.qzeros", T_I32, 4, truth.groups, words);
    for (int g = 0; g < truth.groups; g++)
        for (int o = 0; o < rows; o++) {
            uint32_t v = (uint32_t)(truth.zero[g][o] - bias) & ((1u << bits) - 1);
            put_code(z, g * words, 1, o, bits, v);
        }
}

TEST(test_gptq)
{
    struct rng r = rng_new();
    for (int bits = 2; bits <= 8; bits = bits == 4 ? 8 : bits + 1)
        for (int bias = 0; bias < 2; bias++)
            for (int group = 0; group <= 48; group += 16) { /* 0: of all; 48: the last is short */
                struct stored how = {.format = &stored_gptq,
                                     .method = "gptq",
                                     .bits = (uint32_t)bits,
                                     .group = (uint32_t)group,
                                     .row_block = 1,
                                     .zero_bias = (uint32_t)bias};
                const bool whole = bits == 3 || bias; /* words and groups of 32 */
                make(&r, whole ? 96 : 80, whole ? 128 : 144, group, bits, 0);
                put_gptq(bits, bias, true);
                assert_reads(&r, &how);
                put_groups("q.g_idx");
                assert_reads(&r, &how);
                how.varies = true; /* the tensors say bits and group; a short one is the config's */
                how.bits = bits == 4 ? 8 : 4,
                how.group = group && truth.cols % group ? how.group : 64;
                assert_reads(&r, &how);
                for (int c = truth.cols - 1; c > 0; c--) { /* desc_act */
                    int k = (int)rng_below(&r, (uint32_t)c + 1), t = truth.group_of[c];
                    truth.group_of[c] = truth.group_of[k], truth.group_of[k] = t;
                }
                put_groups("q.g_idx");
                assert_reads(&r, &how);
            }
    assert_true(n_kept > 20);
}

TEST(test_gptq_without_zeros)
{
    struct rng r = rng_new();
    struct stored how = {&stored_gptq, "gptq", 4, 32, 1, 1, true, false};
    make(&r, 40, 64, 32, 4, 0);
    for (int g = 0; g < truth.groups; g++)
        for (int o = 0; o < truth.rows; o++)
            truth.zero[g][o] = 8;
    put_gptq(4, 1, false);
    /* indices of zero in every place are those of files from before there were any */
    uint8_t *p = tensor(STORED_GROUPS, "q.g_idx", T_I32, 4, 64, 0);
    memset(p, 0, 64 * 4);
    assert_reads(&r, &how);
}

/* Columns of a scale, of groups in any order that have `first` and 128 - `first` columns. */
static uint32_t block_of_sorted(struct rng *r, int first)
{
    struct stored how = {&stored_gptq, "gptq", 4, 64, 1, 1, false, false, .keep = true};
    const struct backend_ops ops = {.weight_takes = takes_all};
    struct stored_matrix m;
    struct format f = {0};
    struct err e = ERR_INIT;
    make(r, 40, 128, 64, 4, 0);
    for (int c = 0; c < 128; c++) /* 37 is odd: each column once */
        truth.group_of[c * 37 % 128] = c >= first;
    put_gptq(4, 1, true);
    put_groups("q.g_idx");
    assert_reads(r, &how);
    assert_int_equal(stored_open(&m, &how, "q", 40, 128, find, NULL, &e), 0);
    assert_true(stored_form(&m, &(struct stored_slice){0, 40, 1, 0, 128}, &ops, &f) && f.ordered);
    return f.block;
}

TEST(test_sorted_columns_share_a_scale)
{
    struct rng r = rng_new();
    assert_int_equal(block_of_sorted(&r, 64), 64);
    assert_int_equal(block_of_sorted(&r, 96), 32);
}

TEST(test_awq)
{
    static const int order[] = {0, 2, 4, 6, 1, 3, 5, 7}; /* output in nibble i */
    struct rng r = rng_new();
    for (int group = 0; group <= 48; group += 16) {
        struct stored how = {&stored_awq, "awq", 4, (uint32_t)group, 1, 0, false, false};
        make(&r, 72, 100, group, 4, 0);
        uint8_t *q = tensor(STORED_CODES, "q.qweight", T_I32, 4, 100, 9);
        uint8_t *z = tensor(STORED_ZEROS, "q.qzeros", T_I32, 4, truth.groups, 9);
        for (int w = 0; w < 9; w++)
            for (int i = 0; i < 8; i++) {
                for (int c = 0; c < 100; c++)
                    put_u32(q, c * 9 + w, (uint32_t)truth.code[w * 8 + order[i]][c] << 4 * i, true);
                for (int g = 0; g < truth.groups; g++)
                    put_u32(z, g * 9 + w, (uint32_t)truth.zero[g][w * 8 + order[i]] << 4 * i, true);
            }
        put_scales("q.scales", true);
        assert_reads(&r, &how);
    }
}

TEST(test_packed)
{
    struct rng r = rng_new();
    for (int bits = 2; bits <= 8; bits++)
        for (int i = 0; i < 4; i++) {
            const int group = i & 1 ? 32 : 0, per = 32 / bits, rows = 50, cols = 70;
            const bool symmetric = i & 2;
            struct stored how = {&stored_packed,
                                 "compressed-tensors",
                                 (uint32_t)bits,
                                 (uint32_t)group,
                                 1,
                                 0,
                                 symmetric,
                                 false};
            make(&r, rows, cols, group, bits, 0);
            const int words = (cols + per - 1) / per;
            uint8_t *q = tensor(STORED_CODES, "q.weight_packed", T_I32, 4, rows, words);
            uint8_t *z = tensor(STORED_ZEROS, "q.weight_zero_point", T_I32, 4,
                                (rows + per - 1) / per, truth.groups);
            for (int o = 0; o < rows; o++) {
                for (int c = 0; c < cols; c++)
                    put_u32(q, o * words + c / per, (uint32_t)truth.code[o][c] << c % per * bits,
                            true);
                for (int g = 0; g < truth.groups; g++) {
                    truth.zero[g][o] = symmetric ? 1 << (bits - 1) : truth.zero[g][o];
                    put_u32(z, o / per * truth.groups + g,
                            (uint32_t)truth.zero[g][o] << o % per * bits, true);
                }
            }
            put_scales("q.weight_scale", false);
            assert_reads(&r, &how);
            how.varies = true, how.bits = 4, how.group = bits == 7 ? 0 : how.group;
            if (bits != 7) /* as many words as with 8 */
                assert_reads(&r, &how);
        }
}

int main(void) { return tests_run(NULL, NULL); }
