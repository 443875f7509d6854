/* test_bands.c - matrices that are 0 outside of a few columns of each panel: fewer numbers are
 * kept, and products and rows have the bits of the same matrix with all of its columns. */
#include "model-server/backend/cpu/cpu.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <math.h>
#include <string.h>

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;
enum { X_ROWS = 131 };

struct shape {
    uint32_t groups, rows, cols; /* rows and columns of one group */
};
/* Groups that end within a panel, and that begin at columns which are no multiple of 16, too. */
static const struct shape shapes[] = {{4, 48, 192}, {3, 16, 40},   {8, 64, 34},
                                      {5, 20, 26},  {2, 32, 2200}, {12, 64, 4}};

/* [groups * rows][groups * cols], 0 outside of the groups. */
static float *diagonal(const struct shape *s)
{
    const size_t rows = (size_t)s->groups * s->rows, cols = (size_t)s->groups * s->cols;
    float *w = calloc(rows * cols, sizeof(*w));
    assert_non_null(w);
    for (size_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < s->cols; k++)
            w[r * cols + r / s->rows * s->cols + k] = rng_unit(&rng);
    return w;
}

/* In two parts, as q over k. */
static struct weight *load(struct device *d, const float *above, uint32_t n_above, const float *w,
                           uint32_t rows, uint32_t cols, enum dtype t)
{
    struct err e = ERR_INIT;
    const struct mat_part parts[] = {{above, DT_F32, n_above, cols, cols, 1},
                                     {w, DT_F32, rows, cols, cols, 1}};
    struct weight *out =
        ops->weight_load(d, &(struct mat_desc){.parts = parts, .n_parts = 2, .dtype = t}, &e);
    if (!out)
        fail_msg("%s", e.msg);
    return out;
}

/* The matrix is compared with one that has a panel more, in which no number is 0. */
struct pair {
    struct device *d;
    struct weight *bands, *whole;
    uint32_t rows, cols;
};

static void compare_products(const struct pair *p)
{
    static const uint32_t n_rows[] = {1, 2, 7, 12, 30, X_ROWS};
    const uint32_t more = p->rows + LANES;
    float *x = rng_floats(&rng, (size_t)X_ROWS * p->cols), *bias = rng_floats(&rng, more);
    float *got = malloc(sizeof(float) * X_ROWS * p->rows);
    float *want = malloc(sizeof(float) * X_ROWS * more);
    for (size_t i = 0; i < 2 * sizeof(n_rows) / sizeof(*n_rows); i++) {
        const uint32_t n = n_rows[i / 2];
        if (i % 2) {
            ops->linear(p->d, want, x, n, p->whole, bias);
            ops->linear(p->d, got, x, n, p->bands, bias + LANES);
        } else {
            ops->linear_heads(p->d, want, x, n, (struct weight *[]){p->whole}, 1);
            ops->linear_heads(p->d, got, x, n, (struct weight *[]){p->bands}, 1);
        }
        for (uint32_t r = 0; r < n; r++)
            assert_memory_equal(got + (size_t)r * p->rows, want + (size_t)r * more + LANES,
                                sizeof(float) * p->rows);
    }
    free(x), free(bias), free(got), free(want);
}

static void compare_rows(const struct pair *p)
{
    enum { N = 9 };
    float got[N], want[N];
    for (uint32_t r = 0; r < p->rows; r += 5)
        for (uint32_t k = 0; k < p->cols; k += 3) {
            const uint32_t n = p->cols - k < N ? p->cols - k : N;
            p->whole->kind->row(want, p->whole, r + LANES, k, n);
            p->bands->kind->row(got, p->bands, r, k, n);
            assert_memory_equal(got, want, sizeof(float) * n);
        }
}

static void compare(struct device *d, const struct shape *s, enum dtype t)
{
    const uint32_t rows = s->groups * s->rows, cols = s->groups * s->cols, half = rows / 2;
    float *w = diagonal(s), *above = rng_floats(&rng, (size_t)LANES * cols);
    struct pair p = {d, load(d, w, half, w + (size_t)half * cols, rows - half, cols, t),
                     load(d, above, LANES, w, rows, cols, t), rows, cols};
    assert_non_null(p.bands->from);
    assert_null(p.whole->from);
    assert_true(ops->weight_bytes(p.bands) < ops->weight_bytes(p.whole));
    compare_products(&p);
    compare_rows(&p);
    ops->weight_free(d, p.bands), ops->weight_free(d, p.whole);
    free(w), free(above);
}

TEST(bands_have_the_bits_of_whole_matrices)
{
    static const uint64_t features[] = {0, 1, ~0ull};
    for (size_t f = 0; f < sizeof(features) / sizeof(*features); f++) {
        struct device *d = device(2, features[f]);
        for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
            for (enum dtype t = 0; t < DT_N; t++)
                if (t != DT_BF16 || !d->squares)
                    compare(d, &shapes[i], t);
        ops->close(d);
    }
}

/* Pairs of bfloat16 with rounded x, whether this CPU is fast at them or not. */
TEST(pairs_have_them_too)
{
    struct device *d = device(2, ~0ull);
    d->half = true, d->squares = 0;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        compare(d, &shapes[i], DT_BF16);
    ops->close(d);
}

/* Numbers that are not finite stay in the rows that read them. */
TEST(infinities_stay_in_their_group)
{
    struct device *d = device(1, ~0ull);
    const struct shape *s = &shapes[0];
    const uint32_t rows = s->groups * s->rows, cols = s->groups * s->cols;
    float *w = diagonal(s), *x = rng_floats(&rng, cols), *y = malloc(sizeof(float) * rows);
    struct weight *b = load(d, w, 1, w + cols, rows - 1, cols, DT_F32);
    x[s->cols] = INFINITY; /* of the second group */
    ops->linear(d, y, x, 1, b, NULL);
    for (uint32_t r = 0; r < rows; r++)
        assert_int_equal(isfinite(y[r]) != 0, r / s->rows != 1);
    ops->weight_free(d, b);
    free(w), free(x), free(y);
    ops->close(d);
}

/* No panels of fewer columns: one number is elsewhere; sums depend on the columns; and zeros
 * alone, which have the least. */
TEST(some_matrices_stay_whole)
{
    struct device *d = device(1, ~0ull);
    const struct shape *s = &shapes[0];
    const uint32_t rows = s->groups * s->rows, cols = s->groups * s->cols;
    float *w = diagonal(s);
    w[(size_t)(rows - 1) * cols] = 1;
    struct weight *b = load(d, w, 1, w + cols, rows - 1, cols, DT_F32);
    assert_null(b->from);
    ops->weight_free(d, b);
    memset(w, 0, sizeof(*w) * rows * cols);
    b = load(d, w, 1, w + cols, rows - 1, cols, DT_F32);
    assert_true(b->from && b->stored == LANES);
    ops->weight_free(d, b);
    d->squares = 1;
    b = load(d, w, 1, w + cols, rows - 1, cols, DT_BF16);
    assert_null(b->from);
    ops->weight_free(d, b);
    free(w);
    ops->close(d);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
