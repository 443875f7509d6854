/* test_codes.c - weights that come as codes: exact products have the bits of the numbers in fp32;
 * those with activations in 8 bits agree with double precision on the rounded numbers, and a row's
 * bits do not depend on batch, threads or instruction set. */
#include "model-server/backend/backend.h"
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/numbers.h"
#include "tests/check/codes_made.h"
#include "tests/check/cpu_device.h"
#include <string.h>

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

static struct weight *load_parts(struct device *d, const struct mat_part *p, int n,
                                 enum arith arith)
{
    struct err e = ERR_INIT;
    const struct mat_desc m = {.parts = p, .n_parts = n, .dtype = DT_F32, .arith = arith};
    struct weight *w = ops->weight_load(d, &m, &e);
    if (!w)
        fail_msg("%s", e.msg);
    return w;
}

/* What stands together in a matrix is as wide as it must be. */
TEST(codes_are_kept_and_have_the_bits_of_their_numbers)
{
    enum { PARTS = 3 };
    for (int round = 0; round < FORMS + 60; round++) {
        struct device *d =
            ops->open(&(struct device_options){.threads = 2, .features = round % 4 ? ~0ULL : 0},
                      &(struct err)ERR_INIT);
        const bool k_quants = rng_below(&rng, 2);
        const int parts = round < FORMS ? 1 : 1 + (int)rng_below(&rng, PARTS);
        const uint32_t n = round % 7 ? 1 + rng_below(&rng, 40) : 1;
        struct mat_codes c[PARTS];
        struct mat_part with[PARTS], plain[PARTS];
        uint32_t rows = 0, cols = round < 2 ? 4096 + 512 : 256 * (1 + rng_below(&rng, 3));
        cols += !k_quants && round >= FORMS ? 32 * rng_below(&rng, 8) : 0;
        for (int i = 0; i < parts; i++) {
            const uint32_t own = 1 + rng_below(&rng, 40);
            float *numbers = malloc((size_t)own * cols * sizeof(float));
            assert_true(d && numbers);
            c[i].format = *(round < FORMS ? any_format((uint32_t)round) : drawn_format(&rng, cols));
            c[i].format.rounded = false; /* no loader would ask for these */
            fill_codes(&rng, &c[i], own, cols, numbers);
            plain[i] = (struct mat_part){numbers, DT_F32, own, cols, cols, 1};
            with[i] = (struct mat_part){
                .rows = own, .cols = cols, .source = SOURCE_CODES, .codes = &c[i]};
            rows += own;
        }
        float *x = rng_floats(&rng, (size_t)n * cols);
        float *want = malloc((size_t)n * rows * 4), *got = malloc((size_t)n * rows * 4);
        struct weight *a = load_parts(d, plain, parts, ARITH_EXACT);
        struct weight *b = load_parts(d, with, parts, ARITH_EXACT);
        ops->linear(d, want, x, n, a, NULL);
        ops->linear(d, got, x, n, b, NULL);
        assert_memory_equal(want, got, (size_t)n * rows * 4);
        assert_true(ops->weight_bytes(b) < ops->weight_bytes(a));
        ops->weight_free(d, a), ops->weight_free(d, b);
        for (int i = 0; i < parts; i++)
            free_codes(&c[i]), free((void *)plain[i].data);
        ops->close(d);
        free(x), free(want), free(got);
    }
}

/* ---------------------------------------------------------------- activations in 8 bits */

/* One matrix of a format, its numbers, and the sizes of the terms that they are made of. */
struct made {
    struct mat_codes c;
    struct mat_part part;
    uint32_t rows, cols;
    float *numbers;
};

static void make(struct made *m, const struct format *f, uint32_t rows, uint32_t cols)
{
    *m = (struct made){.c.format = *f, .rows = rows, .cols = cols};
    m->numbers = malloc((size_t)rows * cols * sizeof(float));
    assert_non_null(m->numbers);
    fill_codes(&rng, &m->c, rows, cols, m->numbers);
    m->part = (struct mat_part){.rows = rows, .cols = cols, .source = SOURCE_CODES, .codes = &m->c};
}

static void drop(struct made *m)
{
    free_codes(&m->c);
    free(m->numbers);
}

/* Of number i: what is added and what is taken off, together. */
static double size_of(const struct made *m, size_t i)
{
    const struct format *f = &m->c.format;
    const double by = f->nested ? m->c.by[i / f->group] : 1,
                 less = f->offsets && f->nested ? m->c.less[i / f->group] : 1;
    const double offset = f->offsets ? f32_of_f16(m->c.offset[i / f->block]) * less : 0;
    const double factor = f->factors ? m->c.factor[i / m->cols] : 1;
    return (fabs(256 * (double)f32_of_f16(m->c.scale[i / f->block]) * by) + fabs(offset)) * factor;
}

/* x as the product sees it: -127 .. 127 of a scale for 32 columns. */
static void round_row(double *out, const float *x, uint32_t n)
{
    for (uint32_t g = 0; g < n; g += 32) {
        float top = 0;
        for (uint32_t i = 0; i < 32; i++)
            top = fmaxf(top, fabsf(x[g + i]));
        const float to_int = top > 0 ? 127.0f / top : 0;
        for (uint32_t i = 0; i < 32; i++)
            out[g + i] = (double)rintf(x[g + i] * to_int) * (top / 127.0f);
    }
}

static void check_product(struct device *d, const struct format *f, uint32_t n, uint32_t rows,
                          uint32_t cols)
{
    struct made m;
    make(&m, f, rows, cols);
    for (uint32_t i = 0; i < rows * cols && f->factors; i++)
        m.numbers[i] *= 1 + (float)(i / cols) / 70;
    for (uint32_t i = 0; i < rows && f->factors; i++)
        m.c.factor[i] *= 1 + (float)i / 70;
    struct weight *w = load_parts(d, &m.part, 1, ARITH_INT8);
    float *x = rng_floats(&rng, (size_t)n * cols), *bias = rng_floats(&rng, rows);
    float *y = rng_floats(&rng, (size_t)n * rows + 16);
    const float canary = y[(size_t)n * rows];
    double *row = malloc(cols * sizeof(*row));
    ops->linear(d, y, x, n, w, bias);
    assert_true(row && y[(size_t)n * rows] == canary);
    for (uint32_t r = 0; r < n; r++) {
        round_row(row, x + (size_t)r * cols, cols);
        for (uint32_t i = 0; i < rows; i++) {
            double sum = bias[i], size = fabs(bias[i]);
            for (uint32_t k = 0; k < cols; k++) {
                const size_t at = (size_t)i * cols + k;
                sum += m.numbers[at] * row[k];
                size += size_of(&m, at) * fabs(row[k]);
            }
            if (fabs(y[(size_t)r * rows + i] - sum) > 1e-6 * size)
                fail_msg("%s [%u, %u] x %u: y[%u][%u] = %g, not %g", f->name, rows, cols, n, r, i,
                         y[(size_t)r * rows + i], sum);
        }
    }
    ops->weight_free(d, w);
    drop(&m);
    free(x), free(bias), free(y), free(row);
}

TEST(products_in_8_bits_agree_with_double_precision)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 7, 8, 9, 16, 17, 35};
    struct device *d = device(2, ~0ull);
    for (uint32_t i = 0; i < FORMS; i++)
        for (uint32_t j = 0; j < 10; j++)
            check_product(d, any_format(i), counts[j], 1 + rng_below(&rng, 70),
                          256 * (1 + rng_below(&rng, 3)));
    check_product(d, &formats[FORMAT_Q4_0], 20, 20, 32 * 9);
    ops->close(d);
}

/* Rows of a batch, from two kinds in one matrix, on several devices. */
TEST(rows_in_8_bits_have_the_same_bits_everywhere)
{
    static const uint64_t features[] = {~0ull, 0, CPU_AVX2, CPU_AVX2 | CPU_AVX_VNNI};
    enum { BATCH = 37, OUT = 90 };
    for (int round = 0; round < 12; round++) {
        const uint32_t cols = round == 0 ? 4096 + 512 : 256 * (1 + rng_below(&rng, 3));
        struct made a, b;
        make(&a, drawn_format(&rng, cols), OUT - 33, cols);
        make(&b, drawn_format(&rng, cols), 33, cols);
        const struct mat_part parts[2] = {a.part, b.part};
        float *x = rng_floats(&rng, (size_t)BATCH * cols);
        static float want[BATCH * OUT], got[BATCH * OUT];
        x[(size_t)5 * cols + 3] = round % 2 ? NAN : 1.0f; /* is row 5's alone */
        for (int i = 0; i < 4; i++) {
            struct device *d = device(1 + i, features[i]);
            struct weight *w = load_parts(d, parts, 2, ARITH_INT8);
            ops->linear(d, i ? got : want, x, BATCH, w, NULL);
            if (i)
                assert_memory_equal(want, got, sizeof(want));
            for (uint32_t r = 0, n; r < BATCH; r += n) { /* cut in pieces */
                n = 1 + rng_below(&rng, 6);
                n = n < BATCH - r ? n : BATCH - r;
                ops->linear(d, got + (size_t)r * OUT, x + (size_t)r * cols, n, w, NULL);
            }
            assert_memory_equal(want, got, sizeof(want));
            ops->weight_free(d, w);
            ops->close(d);
        }
        for (uint32_t i = 0; i < BATCH * OUT; i++)
            assert_true(isnan(want[i]) == (round % 2 && i / OUT == 5));
        drop(&a), drop(&b);
        free(x);
    }
}

/* The same bits on matrix units, whatever a CPU is fast at: parts of the columns, panels and rows
 * that are not full, two kinds of codes in one matrix, the order of GPTQ, a row that is lost. */
TEST(squares_have_the_bits_of_tiles)
{
    static const uint32_t rows[] = {48, 49, 63, 70, 600}, outputs[] = {16, 90, 33, 4100, 7};
    for (uint32_t i = 0; i < FORMS + 5; i++) {
        const uint32_t n = rows[i % 5], out = outputs[i % 5];
        const uint32_t cols = i % 7 == 0 ? 1024 + 512 : i < FORMS ? 256 : 64 * (1 + i % 5);
        struct made a, b;
        make(&a, i < FORMS ? any_format(i) : &formats[FORMAT_Q4_0], out, cols);
        make(&b, i % 2 ? drawn_format(&rng, cols) : &a.c.format, 20, cols);
        const struct mat_part parts[2] = {a.part, b.part};
        float *x = rng_floats(&rng, (size_t)n * cols), *bias = rng_floats(&rng, out + 20);
        float *want = rng_floats(&rng, (size_t)n * (out + 20)),
              *got = rng_floats(&rng, (size_t)n * (out + 20));
        uint32_t *order = malloc(cols * sizeof(*order));
        assert_non_null(order);
        for (uint32_t k = 0; k < cols; k++)
            order[k] = cols - 1 - k;
        x[(size_t)5 * cols + 3] = i % 2 ? NAN : 1.0f;
        for (int features = out < 4000 ? 0 : 1; features < 2; features++) {
            struct device *d = device(1 + features, features ? ~0ull : 0);
            struct weight *w = load_parts(d, parts, 2, ARITH_INT8);
            w->order = i % 3 == 0 ? order : NULL;
            for (int squares = 0; squares < 2; squares++) {
                d->squares_codes = squares;
                ops->linear(d, squares ? got : want, x, n, w, i % 4 ? bias : NULL);
            }
            assert_memory_equal(want, got, (size_t)n * (out + 20) * sizeof(float));
            w->order = NULL;
            ops->weight_free(d, w);
            ops->close(d);
        }
        drop(&a), drop(&b);
        free(x), free(bias), free(want), free(got), free(order);
    }
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
