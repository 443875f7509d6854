/* Codes of four bits that are looked up: NVFP4 as modelopt and compressed-tensors store it, nf4 and
 * fp4 of bitsandbytes with plain and with nested scales, and its int8. */
#include "tests/unit/model-server/model/checkpoint/quant/stored_rig.h"
#include <math.h>

enum { FURTHER = STORED_FURTHER };

/* e2m1 doubled is whole numbers, so that scales here are half of what is stored. The scale of all
 * is one whose products are exact. */
static void put_nvfp4(struct rng *r, const char *codes, const char *global, bool divides)
{
    static const int doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const int rows = truth.rows, groups = truth.groups;
    const float all = divides ? 0x1p11f : 3 * 0x1p-12f;
    uint8_t *q = tensor(STORED_CODES, codes, T_U8, 1, rows, truth.cols / 2);
    uint8_t *s = tensor(STORED_SCALES, "q.weight_scale", T_F8_E4M3, 1, rows, groups);
    memcpy(tensor(FURTHER, global, T_F32, 4, 1, 0), &all, 4);
    for (int o = 0; o < rows; o++) {
        for (int c = 0; c < truth.cols; c++) {
            q[o * (truth.cols / 2) + c / 2] |= (uint8_t)(truth.code[o][c] << c % 2 * 4);
            truth.code[o][c] = doubled[truth.code[o][c]];
        }
        for (int g = 0; g < groups; g++) {
            const uint8_t e4m3 = (uint8_t)rng_below(r, 127);
            s[o * groups + g] = e4m3;
            truth.scale[g][o] = f32_of_e4m3(e4m3) / 2 * (divides ? 1 / all : all);
        }
    }
    memset(truth.zero, 0, sizeof(truth.zero));
}

TEST(nvfp4)
{
    struct rng r = rng_new();
    const struct stored modelopt = {&stored_nvfp4, "modelopt", 4, 16, 1, 0, true, true};
    struct stored packed = {&stored_nvfp4_packed, "compressed-tensors", 4, 16, 1, 0, true, true};
    struct stored_matrix m;
    struct err e = ERR_INIT;
    packed.divides = true;
    n_kept = 0;
    for (int i = 0; i < 4; i++) {
        make(&r, 72, i < 2 ? 96 : 112, 16, 4, 0);
        put_nvfp4(&r, "q.weight", "q.weight_scale_2", false);
        assert_reads(&r, &modelopt);
        make(&r, 72, i < 2 ? 96 : 112, 16, 4, 0);
        put_nvfp4(&r, "q.weight_packed", "q.weight_global_scale", true);
        assert_reads(&r, &packed);
    }
    assert_int_equal(n_kept, 8);
    tensors[FURTHER].name = "other";
    assert_int_equal(stored_open(&m, &packed, "q", 72, 112, find, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "has no scale of all of it beside it (`.weight_global_scale`)"));
}

/* ---------------------------------------------------------------- bitsandbytes */

/* A matrix of bitsandbytes, number by number. */
static float want[MOST * MOST];
static float map[16], nested_map[256];

static void put_floats(int i, const char *name, const float *v, int n)
{
    memcpy(tensor(i, name, T_F32, 4, n, 0), v, (size_t)n * 4);
}

static void put_bnb(struct rng *r, bool nf4, bool nested, int rows, int cols, int block)
{
    static const float normal[16] = {-1.0f,
                                     -0.6961928009986877f,
                                     -0.5250730514526367f,
                                     -0.39491748809814453f,
                                     -0.28444138169288635f,
                                     -0.18477343022823334f,
                                     -0.09105003625154495f,
                                     0.0f,
                                     0.07958029955625534f,
                                     0.16093020141124725f,
                                     0.24611230194568634f,
                                     0.33791524171829224f,
                                     0.44070982933044434f,
                                     0.5626170039176941f,
                                     0.7229568362236023f,
                                     1.0f};
    static const float fp4[8] = {0, 1.0f / 192, 2.0f / 3, 1, 1.0f / 3, 0.5f, 1.0f / 6, 0.25f};
    const int n = rows * cols, blocks = (n + block - 1) / block, over = (blocks + 3) / 4;
    float absmax[1024], upper[256];
    char text[256];
    assert_true(blocks <= 1024 && over <= 256);
    memset(tensors, 0, sizeof(tensors));
    for (int i = 0; i < 16; i++)
        map[i] = nf4 ? normal[i] : i < 8 ? fp4[i] : -fp4[i - 8];
    put_floats(FURTHER, "q.weight.quant_map", map, 16);
    for (int i = 0; i < blocks; i++)
        absmax[i] = 0.01f + rng_unit(r) * 0.005f;
    if (nested) {
        uint8_t *codes = tensor(STORED_SCALES, "q.weight.absmax", T_U8, 1, blocks, 0);
        for (int i = 0; i < 256; i++)
            nested_map[i] = (float)(i - 128) / 128;
        for (int i = 0; i < over; i++)
            upper[i] = 0.001f + 0.0005f * rng_unit(r);
        for (int i = 0; i < blocks; i++) {
            codes[i] = (uint8_t)rng_below(r, 256);
            absmax[i] = nested_map[codes[i]] * upper[i / 4] + 0.0123f;
        }
        put_floats(FURTHER + 1, "q.weight.nested_absmax", upper, over);
        put_floats(FURTHER + 2, "q.weight.nested_quant_map", nested_map, 256);
    } else {
        put_floats(STORED_SCALES, "q.weight.absmax", absmax, blocks);
    }
    const int len = snprintf(text, sizeof(text),
                             "{\"quant_type\": \"%s\", \"blocksize\": %d, \"dtype\": \"bfloat16\", "
                             "\"shape\": [%d, %d], \"nested_blocksize\": 4, \"nested_dtype\": "
                             "\"float32\", \"nested_offset\": 0.0123}",
                             nf4 ? "nf4" : "fp4", block, rows, cols);
    memcpy(tensor(FURTHER + 3,
                  nf4 ? "q.weight.quant_state.bitsandbytes__nf4"
                      : "q.weight.quant_state.bitsandbytes__fp4",
                  T_U8, 1, len, 0),
           text, (size_t)len);
    uint8_t *q = tensor(STORED_CODES, "q.weight", T_U8, 1, (n + 1) / 2, 1);
    for (int i = 0; i < n; i++) {
        const uint8_t code = (uint8_t)rng_below(r, 16);
        q[i / 2] |= (uint8_t)(code << (i % 2 ? 0 : 4));
        want[i] = map[code] * absmax[i / block];
    }
}

static void check_bnb(const struct stored *of, int rows, int cols, int block, float most)
{
    struct stored how = *of;
    struct stored_matrix m;
    struct mat_codes k;
    struct err e = ERR_INIT;
    float got[MOST];
    const struct backend_ops ops = {.weight_takes = takes_all};
    const int from = cols > 64 ? 32 : 0;
    how.keep = true;
    if (stored_open(&m, &how, "q", rows, cols, find, NULL, &e))
        fail_msg("%s", e.msg);
    for (int r = 0; r < rows; r++) {
        stored_numbers(&m, r, 1, 3, cols - 7, DT_F32, got, &ops, NULL);
        assert_memory_equal(got, want + (size_t)r * cols + 3, (size_t)(cols - 7) * 4);
    }
    const struct stored_slice s = {1, rows / 2 - 1, 2, from, cols - from};
    assert_int_equal(stored_codes(&m, &s, &k, &ops, NULL), cols % 32 == 0 && block % 32 == 0);
    if (cols % 32 || block % 32)
        return;
    for (int64_t i = 0; i < s.rows * s.cols; i++) {
        const int64_t at = (1 + i / s.cols * 2) * cols + from + i % s.cols;
        const float number = number_kept(&k, i, s.cols);
        if (fabsf(number - want[at]) > most * 0.016f + 0.001f * fabsf(want[at]))
            fail_msg("number %d is %g, not %g", (int)at, (double)number, (double)want[at]);
    }
    free(k.codes);
}

TEST(bitsandbytes_in_four_bits)
{
    struct rng r = rng_new();
    const struct stored nf4 = {.format = &stored_nf4, .method = "bitsandbytes", .bits = 4},
                        fp4 = {.format = &stored_fp4, .method = "bitsandbytes", .bits = 4};
    static const int cols[] = {64, 96, 128, 75, 160};
    struct stored_matrix m;
    struct err e = ERR_INIT;
    for (int i = 0; i < 10; i++) {
        const int block = i % 3 ? 64 : 128; /* of 96 columns it goes on in the next row */
        put_bnb(&r, true, i % 2, 50, cols[i % 5], block);
        check_bnb(&nf4, 50, cols[i % 5], block, 0.5f / 112);
        put_bnb(&r, false, i % 2, 50, cols[i % 5], block);
        check_bnb(&fp4, 50, cols[i % 5], block, 0.4f / 120);
    }
    struct stored renamed = fp4;
    renamed.plain = true; /* the same bytes as half as many numbers */
    tensors[STORED_CODES].type = T_BF16;
    tensors[STORED_CODES].dims[0] /= 2;
    check_bnb(&renamed, 50, 160, 64, 0.4f / 120);
    assert_int_equal(stored_open(&m, &fp4, "q", 50, 160, find, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "has dtype BF16; it must be U8"));
    tensors[STORED_CODES].type = T_U8;
    tensors[STORED_CODES].dims[0] *= 2;
    e = (struct err)ERR_INIT;
    assert_int_equal(stored_open(&m, &fp4, "q", 50, 159, find, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "does not say the shape 50 x 159"));
    tensors[FURTHER + 2].name = "other";
    assert_int_equal(stored_open(&m, &fp4, "q", 50, 160, find, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "has no `.weight.nested_quant_map` beside it"));
}

TEST(int8_rows)
{
    struct rng r = rng_new();
    const struct stored how = {.format = &stored_llm_int8,
                               .method = "bitsandbytes",
                               .bits = 8,
                               .row_block = 1,
                               .symmetric = true,
                               .scale_by = 1.0f / 127};
    n_kept = 0;
    for (int i = 0; i < 4; i++) {
        make(&r, 72, i % 2 ? 96 : 128, 0, 8, 0);
        uint8_t *q = tensor(STORED_CODES, "q.weight", T_I8, 1, truth.rows, truth.cols);
        float scb[MOST];
        for (int o = 0; o < truth.rows; o++) {
            scb[o] = truth.scale[0][o];
            truth.scale[0][o] = scb[o] * (1.0f / 127);
            truth.zero[0][o] = 128;
            for (int c = 0; c < truth.cols; c++)
                q[o * truth.cols + c] = (uint8_t)(truth.code[o][c] - 128);
        }
        put_floats(STORED_SCALES, "q.SCB", scb, truth.rows);
        assert_reads(&r, &how);
    }
    assert_int_equal(n_kept, 4);
}

int main(void) { return tests_run(NULL, NULL); }
