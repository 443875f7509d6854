/* stored_rig.h - a quantised matrix that is built here number by number: its values (`truth`),
 * and its tensors, which each test packs as its format requires; both are compared. */
#ifndef TESTS_UNIT_MODEL_SERVER_MODEL_CHECKPOINT_QUANT_STORED_RIG_H
#define TESTS_UNIT_MODEL_SERVER_MODEL_CHECKPOINT_QUANT_STORED_RIG_H
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <string.h>

enum { MOST = 160, MOST_GROUPS = 16 };

/* Contents of the tensors, one number per element. */
struct truth {
    int rows, cols, groups;
    int code[MOST][MOST], zero[MOST_GROUPS][MOST], group_of[MOST];
    float scale[MOST_GROUPS][MOST];
};
static struct truth truth;

static struct tensor tensors[STORED_TENSORS];
static uint8_t bytes[STORED_TENSORS][MOST * MOST * 4 + 8];

static inline const struct tensor *find(const void *ctx, const char *name)
{
    (void)ctx;
    for (int i = 0; i < STORED_TENSORS; i++)
        if (tensors[i].name && strcmp(tensors[i].name, name) == 0)
            return &tensors[i];
    return NULL;
}

/* At an unaligned address, which the format allows. */
static inline uint8_t *tensor(int i, const char *name, enum tensor_type type, int size, int a,
                              int b)
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

static inline void put_u32(uint8_t *p, int64_t i, uint32_t v, bool or_it)
{
    uint32_t old = 0;
    memcpy(&old, p + i * 4, 4);
    v |= or_it ? old : 0;
    memcpy(p + i * 4, &v, 4);
}

static inline void make(struct rng *r, int rows, int cols, int group, int bits, int zero_from)
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

static inline void put_scales(const char *name, bool by_column)
{
    const int a = by_column ? truth.groups : truth.rows, b = by_column ? truth.rows : truth.groups;
    uint8_t *p = tensor(STORED_SCALES, name, T_F16, 2, a, b);
    for (int g = 0; g < truth.groups; g++)
        for (int o = 0; o < truth.rows; o++) {
            uint16_t h = f16_of_f32(truth.scale[g][o]);
            memcpy(p + 2 * (by_column ? g * truth.rows + o : o * truth.groups + g), &h, 2);
        }
}

static inline void put_groups(const char *name)
{
    uint8_t *p = tensor(STORED_GROUPS, name, T_I32, 4, truth.cols, 0);
    for (int c = 0; c < truth.cols; c++)
        put_u32(p, c, (uint32_t)truth.group_of[c], false);
}

/* ---------------------------------------------------------------- reading back */

static inline void assert_slice(const struct stored_matrix *m, int row, int rows, int col, int cols,
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

/* Number i of rows of `cols`. */
static inline float number_kept(const struct mat_codes *c, int64_t i, int64_t cols)
{
    const struct format *f = &c->format;
    if (f->element == ELEMENT_E4M3) {
        const int64_t block = f->block ? f->block : cols, row = i / cols;
        return f32_of_e4m3(c->codes[i]) *
               c->scales[row * format_blocks(f, (uint32_t)cols) + i % cols / block];
    }
    const float factor = f->factors ? c->factor[i / cols] : 1.0f;
    const int zero = f->zeros ? c->less[i / f->group] : (int)f->zero;
    const int n = f->table ? f->table[c->codes[i]] : c->codes[i];
    return (float)(n - zero) * f32_of_f16(c->scale[i / f->block]) * factor;
}

static inline enum take takes_all(const struct format *f, enum arith a)
{
    (void)f, (void)a;
    return TAKE_NATIVE;
}

/* For whole groups of 32 columns the codes must give the same numbers, if they can be kept.
 * Counted in `n_kept`. */
static int n_kept;
static inline void assert_keeps(struct rng *r, const struct stored *of)
{
    struct stored how = *of;
    struct stored_matrix m;
    struct mat_codes k;
    struct err e = ERR_INIT;
    const struct backend_ops ops = {.weight_takes = takes_all};
    const int64_t step = 1 + rng_below(r, 2), row = rng_below(r, 3);
    const int64_t wide = truth.cols / 32 * 32;
    const bool fp8 = of->is_float && of->bits == 8;
    const int64_t col = fp8 && rng_below(r, 2) ? 32 * rng_below(r, (uint32_t)wide / 32) : 0;
    const struct stored_slice s = {row, (truth.rows - row - 1) / step + 1, step, col,
                                   fp8 ? truth.cols - col : wide};
    how.keep = true;
    assert_int_equal(stored_open(&m, &how, "q", truth.rows, truth.cols, find, NULL, &e), 0);
    if (!stored_codes(&m, &s, &k, &ops, NULL))
        return;
    for (int64_t i = 0; i < s.rows * s.cols; i++) {
        const int o = (int)(row + i / s.cols * step), c = (int)(col + i % s.cols);
        const int from = k.order ? (int)k.order[c] : c, g = truth.group_of[from];
        const float got = number_kept(&k, i, s.cols);
        if (got != (float)(truth.code[o][from] - truth.zero[g][o]) * truth.scale[g][o])
            fail_msg("(%d, %d) is kept as %g", o, from, (double)got);
    }
    free(k.codes);
    n_kept++;
}

static inline void assert_reads(struct rng *r, const struct stored *how)
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
    assert_keeps(r, how);
}
#endif
