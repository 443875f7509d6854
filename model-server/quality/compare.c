#include "model-server/quality/compare.h"
#include <math.h>

struct facts {
    double mean, log_sum; /* log of the sum of exp */
    uint32_t best;
};

static struct facts look_at(const float *row, uint32_t n)
{
    struct facts f = {0};
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        f.mean += row[i];
        f.best = row[i] > row[f.best] ? i : f.best;
    }
    f.mean /= n;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)row[i] - row[f.best]);
    f.log_sum = row[f.best] + log(sum);
    return f;
}

void compare_row(struct comparison *c, const float *exact, const float *other, uint32_t vocab,
                 int64_t next)
{
    const struct facts a = look_at(exact, vocab), b = look_at(other, vocab);
    for (uint32_t i = 0; i < vocab; i++) {
        double x = exact[i] - a.mean, error = other[i] - b.mean - x, lp = exact[i] - a.log_sum;
        c->squares += x * x;
        c->error_squares += error * error;
        c->largest = fabs(error) > c->largest ? fabs(error) : c->largest;
        c->divergence += exp(lp) * (lp - (other[i] - b.log_sum));
    }
    c->rows++;
    c->agreed += a.best == b.best;
    if (next < 0)
        return;
    c->predicted++;
    c->nll += a.log_sum - exact[next];
    c->other_nll += b.log_sum - other[next];
}

double compare_perplexity(double nll, uint64_t predicted)
{
    return predicted ? exp(nll / (double)predicted) : 0;
}

double compare_error(const struct comparison *c)
{
    return c->squares > 0 ? sqrt(c->error_squares / c->squares) : 0;
}
