/* The factor that GPTQ reads, against plain arithmetic in double precision. */
#include "model-server/quantize/linalg.h"
#include "tests/unit/test.h"
#include <math.h>

static const struct workers alone = {0};

static float *random_rows(size_t rows, size_t n)
{
    float *x = malloc(rows * n * sizeof(*x));
    for (size_t i = 0; i < rows * n; i++)
        x[i] = (float)rand() / (float)RAND_MAX - 0.5F;
    return x;
}

TEST(test_sums_of_outer_products)
{
    static const size_t sizes[] = {1, 3, 16, 37, 130};
    srand(test_seed(1));
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        const size_t n = sizes[s], rows = 11;
        float *x = random_rows(rows, n), *h = calloc(n * n, sizeof(*h));
        linalg_gram(&alone, h, x, rows, n);
        linalg_gram(&alone, h, x, rows, n); /* added */
        for (size_t i = 0; i < n; i++)
            for (size_t j = i; j < n; j++) {
                double sum = 0;
                for (size_t r = 0; r < rows; r++)
                    sum += 2.0 * (double)x[r * n + i] * (double)x[r * n + j];
                assert_true(fabs((double)h[i * n + j] - sum) < 1e-4);
            }
        free(x), free(h);
    }
}

/* u h u^T is the identity where inverse(h) = u^T u. */
TEST(test_the_factor_of_the_inverse)
{
    static const size_t sizes[] = {1, 2, 64, 65, 200};
    srand(test_seed(2));
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        const size_t n = sizes[s], rows = 2 * n + 3;
        float *x = random_rows(rows, n), *h = calloc(n * n, sizeof(*h));
        double *full = calloc(n * n, sizeof(*full)), *uh = calloc(n * n, sizeof(*uh));
        linalg_gram(&alone, h, x, rows, n);
        for (size_t i = 0; i < n; i++) {
            h[i * n + i] += 1;
            for (size_t j = i; j < n; j++)
                full[i * n + j] = full[j * n + i] = (double)h[i * n + j];
        }
        assert_int_equal(linalg_inverse_factor(&alone, h, n), 0);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++)
                for (size_t k = i; k < n; k++)
                    uh[i * n + j] += (double)h[i * n + k] * full[k * n + j];
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) {
                double sum = 0;
                for (size_t k = j; k < n; k++)
                    sum += uh[i * n + k] * (double)h[j * n + k];
                assert_true(fabs(sum - (i == j)) < 1e-3);
            }
        free(x), free(h), free(full), free(uh);
    }
}

TEST(test_what_is_not_positive_definite)
{
    float h[4] = {1, 2, 0, 1}, nan[1] = {NAN};
    assert_int_equal(linalg_inverse_factor(&alone, h, 2), -1);
    assert_int_equal(linalg_inverse_factor(&alone, nan, 1), -1);
}

int main(void) { return tests_run(NULL, NULL); }
