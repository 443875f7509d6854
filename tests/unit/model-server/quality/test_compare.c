/* What the comparison of two rows of logits comes to, against figures worked out by hand. */
#include "model-server/quality/compare.h"
#include "tests/unit/test.h"
#include <math.h>

TEST(test_the_same_row_has_no_error)
{
    static const float row[] = {1, -2, 3, 0.5F}, moved[] = {11, 8, 13, 10.5F};
    struct comparison c = {0};
    compare_row(&c, row, moved, 4, 2); /* a constant per row means nothing */
    assert_int_equal(c.rows, 1);
    assert_int_equal(c.predicted, 1);
    assert_int_equal(c.agreed, 1);
    assert_true(compare_error(&c) < 1e-6);
    assert_true(fabs(c.divergence) < 1e-6);
    assert_true(fabs(c.nll - c.other_nll) < 1e-6);
}

TEST(test_two_choices)
{
    /* probabilities 3/4 and 1/4 against 1/4 and 3/4 */
    const float l3 = logf(3), exact[] = {l3, 0}, other[] = {0, l3};
    struct comparison c = {0};
    compare_row(&c, exact, other, 2, 1);
    compare_row(&c, exact, other, 2, NO_NEXT);
    assert_int_equal(c.rows, 2);
    assert_int_equal(c.predicted, 1);
    assert_int_equal(c.agreed, 0);
    assert_true(fabs(c.nll - log(4)) < 1e-6);
    assert_true(fabs(c.other_nll - log(4.0 / 3)) < 1e-6);
    assert_true(fabs(c.divergence - 2 * 0.5 * log(3)) < 1e-6); /* (3/4 - 1/4) log 3 a row */
    assert_true(fabs(compare_error(&c) - 2) < 1e-6);           /* each centred row is turned over */
    assert_true(fabs(c.largest - log(3)) < 1e-6);
    assert_true(fabs(compare_perplexity(c.nll, c.predicted) - 4) < 1e-5);
}

TEST(test_logits_that_exp_cannot_take)
{
    static const float exact[] = {1000, -1000, 999}, other[] = {1000, -1000, 1001};
    struct comparison c = {0};
    compare_row(&c, exact, other, 3, 0);
    assert_true(isfinite(c.nll) && isfinite(c.other_nll) && isfinite(c.divergence));
    assert_int_equal(c.agreed, 0);
}

int main(void) { return tests_run(NULL, NULL); }
