/* GPTQ against its definition: one row and column after the other, with the inverse of what is left
 * computed anew in double precision; and against rounding to nearest. */
#include "model-server/quantize/gptq.h"
#include "model-server/quantize/linalg.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>

static const struct workers alone = {0};
enum { ROWS = 5, COLS = 24, TOKENS = 60, GROUP = 8 };

static void make(float *w, float *x, float *h)
{
    for (int i = 0; i < ROWS * COLS; i++)
        w[i] = (float)rand() / (float)RAND_MAX - 0.5F;
    for (int t = 0; t < TOKENS; t++) { /* columns that go together */
        const float all = (float)rand() / (float)RAND_MAX - 0.5F;
        for (int i = 0; i < COLS; i++)
            x[t * COLS + i] = all * (float)(1 + i % 3) + (float)rand() / (float)RAND_MAX - 0.5F;
    }
    memset(h, 0, COLS * COLS * sizeof(*h));
    linalg_gram(&alone, h, x, TOKENS, COLS);
}

/* Inverse by Gauss and Jordan. */
static void invert(double *a, int n)
{
    double b[COLS * COLS] = {0};
    for (int i = 0; i < n; i++)
        b[i * n + i] = 1;
    for (int i = 0; i < n; i++) {
        const double p = a[i * n + i];
        for (int j = 0; j < n; j++)
            a[i * n + j] /= p, b[i * n + j] /= p;
        for (int r = 0; r < n; r++) {
            const double f = r == i ? 0 : a[r * n + i];
            for (int j = 0; j < n; j++)
                a[r * n + j] -= f * a[i * n + j], b[r * n + j] -= f * b[i * n + j];
        }
    }
    memcpy(a, b, (size_t)n * (size_t)n * sizeof(*a));
}

static void plain_gptq(const struct grid_kind *k, const float *w, const float *h, double damp,
                       uint8_t *codes)
{
    double mean = 0;
    for (int i = 0; i < COLS; i++)
        mean += (double)h[i * COLS + i] / COLS;
    for (int r = 0; r < ROWS; r++) {
        struct grid g = {1, 0};
        float row[COLS];
        memcpy(row, w + r * COLS, sizeof(row));
        for (int i = 0; i < COLS; i++) {
            const int n = COLS - i;
            double inverse[COLS * COLS];
            for (int a = 0; a < n; a++)
                for (int b = 0; b < n; b++) {
                    const int lo = i + (a < b ? a : b), hi = i + (a < b ? b : a);
                    inverse[a * n + b] = (double)h[lo * COLS + hi] + (a == b ? damp * mean : 0);
                }
            invert(inverse, n);
            if (i % GROUP == 0)
                g = grid_fit(k, row + i, NULL, GROUP);
            const int code = grid_code(&g, grid_most(k), row[i]);
            const double error = (double)(row[i] - grid_number(&g, code)) / inverse[0];
            for (int j = 0; j < n; j++)
                row[i + j] -= (float)(error * inverse[j]);
            codes[r * COLS + i] = (uint8_t)code;
        }
    }
}

TEST(test_the_definition)
{
    float w[ROWS * COLS], copy[ROWS * COLS], x[TOKENS * COLS], h[COLS * COLS];
    uint8_t codes[ROWS * COLS];
    const struct gptq o = {.damp = 0.01};
    srand(test_seed(3));
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        const struct grid_kind k = {.bits = 4, .symmetric = symmetric, .scale = SCALE_F16};
        struct grid_matrix m;
        struct err e = ERR_INIT;
        int other = 0;
        make(w, x, h);
        memcpy(copy, w, sizeof(w));
        plain_gptq(&k, w, h, o.damp, codes);
        assert_int_equal(grid_matrix_init(&m, &k, ROWS, COLS, GROUP), 0);
        assert_int_equal(gptq_quantise(&o, &alone, &m, copy, h, &e), 0);
        for (int i = 0; i < ROWS * COLS; i++)
            other += m.codes[i] != codes[i];
        assert_true(other <= 1); /* a tie in fp32 */
        grid_matrix_free(&m);
    }
}

static double output_error(const struct grid_matrix *m, const float *w, const float *x)
{
    float *q = malloc(m->rows * m->cols * sizeof(*q));
    double sum = 0;
    grid_matrix_numbers(m, q);
    for (int t = 0; t < TOKENS; t++)
        for (size_t r = 0; r < m->rows; r++) {
            double y = 0;
            for (size_t c = 0; c < m->cols; c++)
                y += (double)x[(size_t)t * m->cols + c] *
                     (double)(q[r * m->cols + c] - w[r * m->cols + c]);
            sum += y * y;
        }
    free(q);
    return sum;
}

TEST(test_outputs_are_nearer_than_by_rounding)
{
    float w[ROWS * COLS], copy[ROWS * COLS], x[TOKENS * COLS], h[COLS * COLS];
    const struct grid_kind k = {.bits = 3, .symmetric = true, .scale = SCALE_F16};
    struct err e = ERR_INIT;
    double sum[4] = {0};
    srand(test_seed(4));
    for (int round = 0; round < 10; round++) {
        make(w, x, h);
        for (int way = 0; way < 4; way++) { /* 0: rounded to nearest */
            const struct gptq o = {.damp = 0.01,
                                   .order = way ? (enum gptq_order)(way - 1) : GPTQ_STORED};
            struct grid_matrix m;
            assert_int_equal(grid_matrix_init(&m, &k, ROWS, COLS, GROUP), 0);
            memcpy(copy, w, sizeof(w));
            if (way == 0)
                grid_matrix_round(&alone, &m, w, NULL);
            else
                assert_int_equal(gptq_quantise(&o, &alone, &m, copy, h, &e), 0);
            assert_true((m.group_of != NULL) == (way && o.order == GPTQ_GROUPS));
            sum[way] += output_error(&m, w, x);
            grid_matrix_free(&m);
        }
    }
    assert_true(sum[1] < 0.8 * sum[0]);
    assert_true(sum[2] < 0.8 * sum[0]);
    assert_true(sum[3] < 0.8 * sum[0]);
}

/* A group longer than a block, and a row as one group: the grid is fitted once, at its start. */
TEST(test_long_groups)
{
    enum { N = 300, T = 40 };
    const size_t groups[] = {0, 150, 300, 100};
    const struct gptq o = {.damp = 0.01};
    const struct grid_kind k = {.bits = 4, .symmetric = true, .scale = SCALE_F16};
    float *w = malloc(3 * N * sizeof(*w)), *x = malloc(T * N * sizeof(*x));
    float *h = calloc(N * N, sizeof(*h)), *copy = malloc(3 * N * sizeof(*copy));
    struct err e = ERR_INIT;
    srand(test_seed(5));
    for (int i = 0; i < 3 * N; i++)
        w[i] = (float)rand() / (float)RAND_MAX - 0.5F;
    for (int i = 0; i < T * N; i++)
        x[i] = (float)rand() / (float)RAND_MAX - 0.5F;
    linalg_gram(&alone, h, x, T, N);
    for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
        struct grid_matrix m;
        assert_int_equal(grid_matrix_init(&m, &k, 3, N, groups[g]), 0);
        memcpy(copy, w, 3 * N * sizeof(*w));
        assert_int_equal(gptq_quantise(&o, &alone, &m, copy, h, &e), 0);
        for (size_t i = 0; i < 3 * m.groups; i++)
            assert_true(m.grids[i].scale > 0.01F && m.grids[i].scale < 1);
        grid_matrix_free(&m);
    }
    free(w), free(x), free(h), free(copy);
}

int main(void) { return tests_run(NULL, NULL); }
