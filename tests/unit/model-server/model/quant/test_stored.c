/* Quantised matrices as numbers: made here, code by code, packed as each format is described, and
 * read back in slices; and what files that do not fit are told. */
#include "model-server/backend/numbers.h"
#include "model-server/model/quant/stored.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 160, MOST_GROUPS = 16 };

/* What the tensors say, one number a place. */
struct truth {
    int rows, cols, groups;
    int code[MOST][MOST], zero[MOST_GROUPS][MOST], group_of[MOST];
    float scale[MOST_GROUPS][MOST];
};
static struct truth truth;

static struct tensor tensors[STORED_TENSORS];
static uint8_t bytes[STORED_TENSORS][MOST * MOST * 4 + 8];

static const struct tensor *find(const void *ctx, const char *name)
{
    (void)ctx;
    for (int i = 0; i < STORED_TENSORS; i++)
        if (tensors[i].name && strcmp(tensors[i].name, name) == 0)
            return &tensors[i];
    return NULL;
}

/* At an odd address, as the format allows. */
static uint8_t *tensor(int i, const char *name, enum tensor_type type, int size, int a, int b)
{
    memset(bytes[i], 0, sizeof(bytes[i]));
    tensors[i] = (struct tensor){.name = name,
                                 .file = "w",
                                 .type = type,
                                 .n_dims = b ? 2 : 1,
                                 .dims = {(uint64_t)a, (uint64_t)b},
                                 .bytes = (uint64_t)a * (uint64_t)(b ? b : 1) * (uint64_t)size,
                                 .data = bytes[i] + 1};
    assert_true(tensors[i].bytes < sizeof(bytes[i]));
    return bytes[i] + 1;
}

static void put_u32(uint8_t *p, int64_t i, uint32_t v, bool or_it)
{
    uint32_t old = 0;
    memcpy(&old, p + i * 4, 4);
    v |= or_it ? old : 0;
    memcpy(p + i * 4, &v, 4);
}

static void make(struct rng *r, int rows, int cols, int group, int bits, int zero_from)
{
    memset(tensors, 0, sizeof(tensors));
    truth.rows = rows, truth.cols = cols;
    truth.groups = group ? (cols + group - 1) / group : 1;
    assert_true(truth.groups <= MOST_GROUPS && rows <= MOST && cols <= MOST);
    for (int c = 0; c < cols; c++) {
        truth.group_of[c] = group ? c / group : 0;
        for (int o = 0; o < rows; o++)
            truth.code[o][c] = (int)rng_below(r, 1u << bits);
    }
    for (int g = 0; g < truth.groups; g++)
        for (int o = 0; o < rows; o++) {
            truth.zero[g][o] = zero_from + (int)rng_below(r, (1u << bits) - (uint32_t)zero_from);
            truth.scale[g][o] = f32_of_f16(f16_of_f32(0.01f + (float)rng_below(r, 100) / 1000));
        }
}

static void put_scales(const char *name, bool by_column)
{
    const int a = by_column ? truth.groups : truth.rows, b = by_column ? truth.rows : truth.groups;
    uint8_t *p = tensor(STORED_SCALES, name, T_F16, 2, a, b);
    for (int g = 0; g < truth.groups; g++)
        for (int o = 0; o < truth.rows; o++) {
            uint16_t h = f16_of_f32(truth.scale[g][o]);
            memcpy(p + 2 * (by_column ? g * truth.rows + o : o * truth.groups + g), &h, 2);
        }
}

static void put_groups(const char *name)
{
    uint8_t *p = tensor(STORED_GROUPS, name, T_I32, 4, truth.cols, 0);
    for (int c = 0; c < truth.cols; c++)
        put_u32(p, c, (uint32_t)truth.group_of[c], false);
}

/* ---------------------------------------------------------------- reading back */

static void assert_slice(const struct stored_matrix *m, int row, int rows, int col, int cols,
                         enum dtype to)
{
    static float out[MOST * MOST];
    stored_numbers(m, row, rows, col, cols, to, out, &(struct backend_ops){.name = "none"}, NULL);
    for (int o = 0; o < rows; o++)
        for (int c = 0; c < cols; c++) {
            int g = truth.group_of[col + c];
            float want = (float)(truth.code[row + o][col + c] - truth.zero[g][row + o]) *
                         truth.scale[g][row + o];
            want = to == DT_F32    ? want
                   : to == DT_BF16 ? f32_of_bf16(bf16_of_f32(want))
                                   : f32_of_f16(f16_of_f32(want));
            float got = number_at(out, to, (int64_t)o * cols + c);
            if (got != want)
                fail_msg("(%d, %d): %g, not %g", row + o, col + c, (double)got, (double)want);
        }
}

static void assert_reads(struct rng *r, const struct stored *how)
{
    struct stored_matrix m;
    struct err e = ERR_INIT;
    if (stored_open(&m, how, "q", truth.rows, truth.cols, find, NULL, &e))
        fail_msg("%s", e.msg);
    for (enum dtype t = DT_F32; t < DT_N; t++)
        assert_slice(&m, 0, truth.rows, 0, truth.cols, t);
    for (int i = 0; i < 20; i++) { /* ranks cut anywhere */
        int row = (int)rng_below(r, (uint32_t)truth.rows);
        int col = (int)rng_below(r, (uint32_t)truth.cols);
        assert_slice(&m, row, 1 + (int)rng_below(r, (uint32_t)(truth.rows - row)), col,
                     1 + (int)rng_below(r, (uint32_t)(truth.cols - col)), DT_F32);
    }
}

/* ---------------------------------------------------------------- the formats */

static void put_gptq(int bits, int bias, bool zeros)
{
    const int per = 32 / bits, rows = truth.rows;
    uint8_t *q = tensor(STORED_CODES, "q.qweight", T_I32, 4, truth.cols / per, rows);
    for (int c = 0; c < truth.cols; c++)
        for (int o = 0; o < rows; o++)
            put_u32(q, c / per * rows + o, (uint32_t)truth.code[o][c] << c % per * bits, true);
    put_scales("q.scales", true);
    if (!zeros)
        return;
    uint8_t *z = tensor(STORED_ZEROS, "q.qzeros", T_I32, 4, truth.groups, rows / per);
    for (int g = 0; g < truth.groups; g++)
        for (int o = 0; o < rows; o++) {
            uint32_t v = (uint32_t)(truth.zero[g][o] - bias) & ((1u << bits) - 1);
            put_u32(z, g * (rows / per) + o / per, v << o % per * bits, true);
        }
}

static void test_gptq(void **state)
{
    struct rng r = rng_new();
    (void)state;
    for (int bits = 2; bits <= 8; bits *= 2)
        for (int bias = 0; bias < 2; bias++)
            for (int group = 0; group <= 48; group += 16) { /* 0: of all; 48: the last is short */
                struct stored how = {.format = &stored_gptq,
                                     .method = "gptq",
                                     .bits = (uint32_t)bits,
                                     .group = (uint32_t)group,
                                     .row_block = 1,
                                     .zero_bias = (uint32_t)bias};
                make(&r, 80, 144, group, bits, 0);
                put_gptq(bits, bias, true);
                assert_reads(&r, &how);
                put_groups("q.g_idx");
                assert_reads(&r, &how);
                for (int c = truth.cols - 1; c > 0; c--) { /* desc_act */
                    int k = (int)rng_below(&r, (uint32_t)c + 1), t = truth.group_of[c];
                    truth.group_of[c] = truth.group_of[k], truth.group_of[k] = t;
                }
                put_groups("q.g_idx");
                assert_reads(&r, &how);
            }
}

static void test_gptq_without_zeros(void **state)
{
    struct rng r = rng_new();
    struct stored how = {&stored_gptq, "gptq", 4, 32, 1, 1, true, false};
    (void)state;
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

static void test_awq(void **state)
{
    static const int order[] = {0, 2, 4, 6, 1, 3, 5, 7}; /* output in nibble i */
    struct rng r = rng_new();
    (void)state;
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

static void test_packed(void **state)
{
    struct rng r = rng_new();
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4)
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
        }
}

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
            int e = 100 + (int)rng_below(r, 40);
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

static void test_mxfp4(void **state)
{
    struct rng r = rng_new();
    struct stored_matrix m;
    struct err e = ERR_INIT;
    float row[32];
    const struct stored how = {&stored_mxfp4, "mxfp4", 4, 32, 1, 0, true, true};
    (void)state;
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

/* ---------------------------------------------------------------- what does not fit */

static void refused(const struct stored *how, int rows, int cols, const char *says)
{
    struct stored_matrix m;
    struct err e = ERR_INIT;
    assert_int_equal(stored_open(&m, how, "q", rows, cols, find, NULL, &e), -1);
    assert_int_equal(e.kind, ERR_VALIDATION);
    if (!strstr(e.msg, says) || strchr(e.msg, '\n'))
        fail_msg("`%s` does not say `%s`", e.msg, says);
}

static void test_malformed(void **state)
{
    struct rng r = rng_new();
    struct stored how = {&stored_gptq, "gptq", 4, 32, 1, 1, false, false};
    (void)state;
    make(&r, 40, 64, 32, 4, 0);
    put_gptq(4, 1, true);
    put_groups("q.g_idx");
    refused(&how, 40, 96, "tensor `q.qweight` has shape [8, 40]; config.json means [12, 40]");
    refused(&how, 40, 60, "tensor `q.qweight`: 60 columns are no multiple of 8");
    put_u32(bytes[STORED_GROUPS] + 1, 7, 2, false);
    refused(&how, 40, 64, "tensor `q.g_idx`: column 7 is of group 2, and there are 2");
    put_u32(bytes[STORED_GROUPS] + 1, 7, (uint32_t)-1, false);
    refused(&how, 40, 64, "column 7 is of group -1");
    put_groups("q.g_idx");
    tensors[STORED_GROUPS].type = T_I64;
    refused(&how, 40, 64, "tensor `q.g_idx` has dtype I64; it must be I32");
    put_groups("q.g_idx");
    how.group = 16;
    refused(&how, 40, 64, "tensor `q.scales` has shape [2, 40]; config.json means [4, 40]");
    how.group = 32;
    tensors[STORED_SCALES].type = T_I16;
    refused(&how, 40, 64, "scales must be F32, F16 or BF16");
    put_scales("q.scales", true);
    tensors[STORED_ZEROS].dims[1] = 4;
    refused(&how, 40, 64, "tensor `q.qzeros` has shape [2, 4]; config.json means [2, 5]");
    tensors[STORED_ZEROS].name = NULL;
    refused(&how, 40, 64, "`q.qweight` has no zero points beside it (`.qzeros`)");
    tensors[STORED_SCALES].name = "other";
    refused(&how, 40, 64, "tensor `q.scales` is missing (config.json: weights stored by gptq)");
    tensors[STORED_CODES].name = "other";
    refused(&how, 40, 64, "tensor `q.qweight` is missing");
    how = (struct stored){&stored_scaled, "fp8", 8, 0, 1, 0, true, true};
    make(&r, 40, 64, 0, 8, 0);
    put_bytes(false);
    put_scales("q.weight_scale", false);
    refused(&how, 40, 64, "tensor `q.weight` has dtype I8; it must be F8_E4M3");
    how.is_float = false;
    tensor(STORED_ZEROS, "q.weight_zero_point", T_I8, 1, 40, 1);
    refused(&how, 40, 64, "8-bit weights with zero points are not supported");
}

static void test_malformed_mxfp4(void **state)
{
    struct rng r = rng_new();
    const struct stored how = {&stored_mxfp4, "mxfp4", 4, 32, 1, 0, true, true};
    (void)state;
    make(&r, 72, 96, 32, 4, 0);
    put_mxfp4(&r, 4, T_U8);
    refused(&how, 72, 80, "tensor `q_blocks`: 80 columns are no multiple of 32");
    refused(&how, 36, 96, "tensor `q_blocks` has shape [4, 18, 3, 16]; config.json means [36 rows");
    refused(&how, 72, 64, "tensor `q_blocks` has shape");
    tensors[STORED_SCALES].dims[2] = 2;
    refused(&how, 72, 96, "tensor `q_scales` has shape [4, 18, 2]; config.json means [72 rows, 3]");
    tensors[STORED_SCALES].type = T_BF16;
    refused(&how, 72, 96, "tensor `q_scales` has dtype BF16; it must be U8");
    tensors[STORED_CODES].n_dims = 1;
    refused(&how, 72, 96, "tensor `q_blocks` has shape");
    tensors[STORED_SCALES].name = "other";
    refused(&how, 72, 96, "tensor `q_scales` is missing");
}

/* ---------------------------------------------------------------- config.json */

static char dir[] = "/tmp/test-stored-XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int read_config(const char *q, struct stored *s, struct err *e)
{
    char text[2048];
    snprintf(text, sizeof(text), "{\"quantization_config\":%s}", q);
    write_file("config.json", text);
    *e = (struct err)ERR_INIT;
    return stored_read(s, dir, e);
}

#define CT(format, weights)                                                                        \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format                                \
    "\",\"config_groups\":{\"group_0\":{\"weights\":{" weights "}}}}"

static void test_config(void **state)
{
    static const struct {
        const char *text;
        struct stored is;
    } cases[] = {
        {"null", {0}},
        {"{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"sym\":true}",
         {&stored_gptq, "gptq", 8, 0, 1, 1, true, false}},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,"
         "\"checkpoint_format\":\"gptq_v2\"}",
         {&stored_gptq, "gptq", 4, 128, 1, 0, false, false}},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":64,\"zero_point\":true}",
         {&stored_awq, "awq", 4, 64, 1, 0, false, false}},
        {"{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}",
         {&stored_scaled, "fp8", 8, 0, 0, 0, true, true}},
        {"{\"quant_method\":\"fbgemm_fp8\"}",
         {&stored_scaled, "fbgemm_fp8", 8, 0, 0, 0, true, true}},
        {"{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[\"lm_head\"]}",
         {&stored_mxfp4, "mxfp4", 4, 32, 1, 0, true, true}},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[128,64]}",
         {&stored_scaled_inv, "fp8", 8, 64, 128, 0, true, true}},
        {CT("pack-quantized", "\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\","
                              "\"group_size\":32,\"symmetric\":false"),
         {&stored_packed, "compressed-tensors", 4, 32, 1, 0, false, false}},
        {CT("int-quantized", "\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\""),
         {&stored_scaled, "compressed-tensors", 8, 0, 1, 0, true, false}},
        {CT("float-quantized", "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\""),
         {&stored_scaled, "compressed-tensors", 8, 0, 0, 0, true, true}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct stored *want = &cases[i].is;
        struct stored s;
        struct err e;
        if (read_config(cases[i].text, &s, &e))
            fail_msg("%s", e.msg);
        assert_ptr_equal(s.format, want->format);
        assert_int_equal(s.bits, want->bits);
        assert_int_equal(s.group, want->group);
        assert_int_equal(s.row_block, want->row_block);
        assert_int_equal(s.zero_bias, want->zero_bias);
        assert_int_equal(s.symmetric, want->symmetric);
        assert_int_equal(s.is_float, want->is_float);
        assert_int_equal(!s.method, !want->method);
        if (s.method)
            assert_string_equal(s.method, want->method);
    }
}

static void test_config_refuses(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"3", "`quantization_config` is no object"},
        {"{}", "weights quantised by `an unnamed method` are not supported"},
        {"{\"quant_method\":\"bitsandbytes\"}", "weights quantised by `bitsandbytes`"},
        {"{\"quant_method\":\"gptq\",\"bits\":3}", "weights of 3 bits"},
        {"{\"quant_method\":\"gptq\",\"bits\":1e9}", "weights of 1e+09 bits"},
        {"{\"quant_method\":\"gptq\",\"group_size\":0}", "`group_size` must be"},
        {"{\"quant_method\":\"gptq\",\"group_size\":\"x\"}", "`group_size` must be"},
        {"{\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\"}",
         "`checkpoint_format` marlin is not supported"},
        {"{\"quant_method\":\"gptq\",\"dynamic\":{\"a\":{}}}", "`dynamic`"},
        {"{\"quant_method\":\"awq\",\"bits\":8}", "4 bits, not 8"},
        {"{\"quant_method\":\"awq\",\"version\":\"gemv\"}", "`version` gemv is not supported"},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}", "two positive integers"},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[0,1]}", "two positive integers"},
        {CT("marlin-24", "\"num_bits\":4"), "`format` marlin-24 is not supported"},
        {CT("pack-quantized", "\"num_bits\":4,\"strategy\":\"group\""), "`group_size` is missing"},
        {CT("pack-quantized", "\"type\":\"float\",\"strategy\":\"channel\""),
         "weights of 8 floating-point bits in pack-quantized"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\"}",
         "config_groups say nothing of weights"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stored s;
        struct err e;
        if (!read_config(cases[i].text, &s, &e))
            fail_msg("accepted: %s", cases[i].text);
        assert_int_equal(e.kind, ERR_VALIDATION);
        if (!strstr(e.msg, cases[i].says) || !strstr(e.msg, "/config.json: "))
            fail_msg("`%s` does not say `%s`", e.msg, cases[i].says);
        assert_null(strchr(e.msg, '\n'));
    }
}

static void test_config_in_a_file_of_its_own(void **state)
{
    struct stored s;
    struct err e = ERR_INIT;
    (void)state;
    write_file("config.json", "{}");
    write_file("quant_config.json", "{\"w_bit\":4,\"q_group_size\":64,\"zero_point\":true}");
    assert_int_equal(stored_read(&s, dir, &e), 0);
    assert_ptr_equal(s.format, &stored_awq);
    assert_int_equal(s.group, 64);
    write_file("quantize_config.json", "{\"bits\":8,\"group_size\":32,\"desc_act\":true}");
    assert_int_equal(stored_read(&s, dir, &e), 0);
    assert_ptr_equal(s.format, &stored_gptq);
    assert_int_equal(s.bits, 8);
}

static void test_what_the_user_says(void **state)
{
    static const struct stored plain = {0},
                               gptq = {&stored_gptq, "gptq", 4, 32, 1, 1, false, false},
                               awq = {&stored_awq, "awq", 4, 32, 1, 0, false, false},
                               int8 = {&stored_scaled, "compressed-tensors", 8, 0, 1, 0, true,
                                       false},
                               fp8 = {&stored_scaled, "fp8", 8, 0, 1, 0, true, true};
    static const struct {
        const struct stored *s;
        const char *word, *says; /* NULL: agreed */
        enum quant scheme;
    } cases[] = {
        {&plain, NULL, NULL, QUANT_NONE},
        {&plain, "fp8", NULL, QUANT_FP8},
        {&plain, "eetq", NULL, QUANT_INT8},
        {&plain, "gptq", "this checkpoint is not stored quantised", 0},
        {&gptq, NULL, NULL, QUANT_NONE},
        {&gptq, "auto", NULL, QUANT_NONE},
        {&gptq, "gptq", NULL, QUANT_NONE},
        {&gptq, "marlin", NULL, QUANT_NONE},
        {&gptq, "awq", "--quantize awq: the weights of this checkpoint are stored by gptq", 0},
        {&gptq, "eetq", "stored by gptq already", 0},
        {&awq, "gptq", NULL, QUANT_NONE},
        {&fp8, "fp8", NULL, QUANT_NONE},
        {&int8, "fp8", "stored by compressed-tensors already", 0},
        {&int8, "compressed-tensors", NULL, QUANT_NONE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err e = ERR_INIT;
        enum quant quant, scheme;
        assert_int_equal(quant_parse(cases[i].word, &quant, &e), 0);
        int rc = stored_agree(cases[i].s, cases[i].word, quant, &scheme, &e);
        assert_int_equal(rc, cases[i].says ? -1 : 0);
        if (rc ? !strstr(e.msg, cases[i].says) : scheme != cases[i].scheme)
            fail_msg("case %zu: %s", i, e.msg);
    }
}

static int start(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int stop(void **state)
{
    char cmd[64];
    (void)state;
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
    return system(cmd); /* NOLINT(concurrency-mt-unsafe) */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gptq),
        cmocka_unit_test(test_gptq_without_zeros),
        cmocka_unit_test(test_awq),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_scaled),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_mxfp4),
        cmocka_unit_test(test_malformed_mxfp4),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_config_refuses),
        cmocka_unit_test(test_config_in_a_file_of_its_own),
        cmocka_unit_test(test_what_the_user_says),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
