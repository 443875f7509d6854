/* test_e4m3.c - weights that come as codes in e4m3: a sum for each block of columns times its
 * scale, in the same bits for any batch and number of threads, and instruction set, of which matrix
 * units have their own. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/numbers.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;
enum { PARTS = 3, NOT_A_NUMBER = 0x7f };

struct made {
    struct mat_codes c[PARTS];
    struct mat_part part[PARTS];
    int n;
    uint32_t rows, cols;
};

static void make(struct made *m, int parts, uint32_t cols)
{
    *m = (struct made){.n = parts, .cols = cols};
    for (int i = 0; i < parts; i++) {
        const uint32_t rows = 1 + rng_below(&rng, 90), kind = rng_below(&rng, 9);
        struct mat_codes *c = &m->c[i];
        c->format = formats[FORMAT_FP8];
        c->format.block = kind < 7 ? 32u << kind : 0;
        const uint32_t blocks = format_blocks(&c->format, cols);
        c->codes = malloc((size_t)rows * cols);
        c->scales = malloc(sizeof(float) * rows * blocks);
        assert_true(c->codes && c->scales);
        for (uint32_t k = 0; k < rows * cols; k++) {
            c->codes[k] = (uint8_t)rng_u32(&rng);
            c->codes[k] ^= (c->codes[k] & NOT_A_NUMBER) == NOT_A_NUMBER;
        }
        for (uint32_t k = 0; k < rows * blocks; k++)
            c->scales[k] = rng_unit(&rng) * ldexpf(1, -(int)rng_below(&rng, 20));
        m->part[i] =
            (struct mat_part){.rows = rows, .cols = cols, .source = SOURCE_CODES, .codes = c};
        m->rows += rows;
    }
}

static void drop(struct made *m)
{
    for (int i = 0; i < m->n; i++)
        free(m->c[i].codes), free(m->c[i].scales);
}

static struct weight *load(struct device *d, const struct made *m)
{
    struct err e = ERR_INIT;
    struct weight *w = ops->weight_load(
        d, &(struct mat_desc){.parts = m->part, .n_parts = m->n, .dtype = DT_BF16}, &e);
    if (!w)
        fail_msg("%s", e.msg);
    return w;
}

/* Columns whose sum is multiplied at once: the least block of all parts. */
static uint32_t least_block(const struct made *m)
{
    uint32_t least = 0;
    for (int i = 0; i < m->n; i++) {
        const uint32_t block = m->c[i].format.block;
        least = block && (!least || block < least) ? block : least;
    }
    return least ? least : m->cols;
}

static float chain_of(const uint8_t *codes, const float *x, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum = fmaf(f32_of_e4m3(codes[i]), x[i], sum);
    return sum;
}

static float no_subnormal(float f) { return fabsf(f) < 0x1p-126f ? copysignf(0.0f, f) : f; }

/* The same on matrix units: squares.h, with x in parts. */
static float squares_of(const uint8_t *codes, const float *x, uint32_t n)
{
    enum { COLS = SQUARE_STEP_BYTES / 2 };
    uint16_t parts[SQUARE_PARTS][COLS];
    float sum = 0;
    for (uint32_t k = 0; k < n; k += COLS) {
        const uint32_t cols = n - k < COLS ? n - k : COLS;
        k_split_bf16_ref((uint16_t *const[]){parts[0], parts[1], parts[2]}, x + k, cols);
        for (int p = 0; p < SQUARE_PARTS; p++) {
            float chain[2] = {0};
            for (uint32_t i = 0; i < cols; i++)
                chain[i % 2] = no_subnormal(fmaf(no_subnormal(f32_of_bf16(parts[p][i])),
                                                 f32_of_e4m3(codes[k + i]), chain[i % 2]));
            sum = no_subnormal(sum + no_subnormal(chain[0] + chain[1]));
        }
    }
    return sum;
}

static float one_sum(const struct mat_codes *c, uint32_t row, uint32_t cols, uint32_t block,
                     const float *x, bool squares)
{
    const uint32_t own = c->format.block ? c->format.block : cols;
    const float *scales = c->scales + (size_t)row * format_blocks(&c->format, cols);
    float y = 0;
    for (uint32_t k = 0; k < cols; k += block) {
        const uint32_t n = cols - k < block ? cols - k : block;
        const uint8_t *codes = c->codes + (size_t)row * cols + k;
        const float sum = squares ? squares_of(codes, x + k, n) : chain_of(codes, x + k, n);
        y = k ? fmaf(sum, scales[k / own], y) : sum * scales[0];
    }
    return y;
}

static void each_sum(const struct made *m, const float *x, uint32_t n, const float *y, bool squares)
{
    const uint32_t block = least_block(m);
    for (uint32_t r = 0; r < n; r++) {
        const float *at = y + (size_t)r * m->rows;
        for (int i = 0; i < m->n; at += m->part[i++].rows)
            for (uint32_t o = 0; o < m->part[i].rows; o++) {
                const float want =
                    one_sum(&m->c[i], o, m->cols, block, x + (size_t)r * m->cols, squares);
                if (memcmp(&want, &at[o], sizeof(want)) != 0)
                    fail_msg("row %u of %u, part %d, output %u, blocks of %u of %u: %g, not %g", r,
                             n, i, o, block, m->cols, (double)at[o], (double)want);
            }
    }
}

TEST(products_are_sums_of_blocks)
{
    for (int round = 0; round < 60; round++) {
        static const uint64_t features[] = {~0ull, CPU_AVX2, 0, ~(uint64_t)CPU_AMX_BF16};
        struct device *d = device(1 + (int)rng_below(&rng, 3), features[round % 4]);
        struct made m;
        /* more than what products take at a time, and widths that no block divides */
        make(&m, 1 + (int)rng_below(&rng, PARTS),
             round % 5 ? 1 + rng_below(&rng, 700) : 4096 + rng_below(&rng, 300));
        struct weight *w = load(d, &m);
        const uint32_t n = round % 8 ? 1 + rng_below(&rng, 70) : 1;
        float *x = rng_floats(&rng, (size_t)n * m.cols);
        float *y = malloc(sizeof(float) * n * m.rows), *row = malloc(sizeof(float) * m.cols);
        assert_true(y && row);
        ops->linear(d, y, x, n, w, NULL);
        each_sum(&m, x, n, y, w->squares);
        uint32_t at = 0;
        for (int i = 0; i < m.n; at += (uint32_t)m.part[i++].rows) {
            w->kind->row(row, w, at, 0, m.cols);
            const struct format *f = &m.c[i].format;
            for (uint32_t k = 0; k < m.cols; k++)
                assert_true(row[k] == f32_of_e4m3(m.c[i].codes[k]) *
                                          m.c[i].scales[f->block ? k / f->block : 0]);
        }
        ops->weight_free(d, w);
        ops->close(d);
        drop(&m);
        free(x), free(y), free(row);
    }
}

TEST(a_number_that_is_none_spoils_its_row_alone)
{
    struct device *d = device(2, ~0ull);
    struct made m;
    make(&m, 1, 300);
    m.c[0].codes[299] = NOT_A_NUMBER; /* of row 0 */
    struct weight *w = load(d, &m);
    float *x = rng_floats(&rng, 300), *y = malloc(sizeof(float) * m.rows);
    assert_non_null(y);
    ops->linear(d, y, x, 1, w, NULL);
    for (uint32_t i = 0; i < m.rows; i++)
        assert_int_equal(!!isnan(y[i]), i == 0);
    ops->weight_free(d, w);
    ops->close(d);
    drop(&m);
    free(x), free(y);
}

#if defined(__x86_64__)
/* Kernels in vectors make no subnormal fp32 number of a subnormal code: on Intel's CPUs each costs
 * a microcode assist. The bit of MXCSR says whether there was one as an operand. */
TEST(subnormal_codes_need_no_assist)
{
    enum { COLS = 256, DENORMAL = 2, FLAGS = 63 };
    static const uint64_t features[] = {CPU_AVX512 | CPU_AVX2, CPU_AVX2};
    struct made m;
    make(&m, 1, COLS);
    for (uint32_t i = 0; i < m.rows * COLS; i++)
        m.c[0].codes[i] &= 0x87; /* all are subnormal, or zero */
    for (uint32_t i = 0; i < m.rows * format_blocks(&m.c[0].format, COLS); i++)
        m.c[0].scales[i] = 1;
    float x[COLS], *y = malloc(sizeof(*y) * m.rows);
    assert_non_null(y);
    for (uint32_t k = 0; k < COLS; k++)
        x[k] = 1;
    for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
        struct device *d = device(1, features[i]);
        if ((d->features & features[i]) == features[i]) {
            struct weight *w = load(d, &m);
            _mm_setcsr(_mm_getcsr() & ~(unsigned)FLAGS);
            ops->linear(d, y, x, 1, w, NULL);
            assert_int_equal(_mm_getcsr() & DENORMAL, 0);
            ops->weight_free(d, w);
        }
        ops->close(d);
    }
    drop(&m);
    free(y);
}
#endif

TEST(blocks_that_are_taken)
{
    struct format f = formats[FORMAT_FP8];
    for (uint32_t block = 0; block < 5000; block++) {
        f.block = block;
        const bool fits = block == 0 || (block >= 32 && block <= 2048 && !(block & (block - 1)));
        assert_int_equal(ops->weight_takes(&f, ARITH_EXACT), fits ? TAKE_NATIVE : TAKE_WIDEN);
        assert_int_equal(ops->weight_takes(&f, ARITH_INT8), TAKE_NO);
    }
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
