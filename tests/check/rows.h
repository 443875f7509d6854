/* rows.h - shared by tests of operations on rows, against double precision. */
#ifndef TESTS_CHECK_ROWS_H
#define TESTS_CHECK_ROWS_H
#include "tests/unit/test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of a row, around the widths of vectors. */
static const uint32_t widths[] = {1, 15, 16, 129, 1003};
enum { N_WIDTHS = sizeof(widths) / sizeof(*widths) };

/* Freed by the caller. */
static inline float *copy_of(const float *x, size_t n)
{
    float *y = malloc(n * sizeof(*y));
    assert_non_null(y);
    return memcpy(y, x, n * sizeof(*y));
}

/* `magnitude`: of the terms that `got` sums. */
static inline void assert_near(double tolerance, double got, double want, double magnitude)
{
    if (!(fabs(got - want) <= tolerance * (1 + magnitude)))
        fail_msg("%.9g, not %.9g", got, want);
}
#endif
