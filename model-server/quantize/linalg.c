#include "model-server/quantize/linalg.h"
#include "common/multiversion.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A tile of sums stays in registers: TALL x WIDE. BLOCK: columns of a step of the factorisations.
 */
enum { TALL = 4, WIDE = 16, BLOCK = 64, LANES = 16, STRIPE = 128 };

/* ---------------------------------------------------------------- x^T x */

struct gram {
    float *h;
    const float *x;
    size_t rows, n;
};

/* Columns i .. i + TALL and j .. j + WIDE of x, all within its bounds. */
MULTIVERSION static void gram_tile(const struct gram *g, size_t i, size_t j)
{
    float sum[TALL][WIDE] = {{0}};
    for (size_t r = 0; r < g->rows; r++) {
        const float *a = g->x + r * g->n + i, *b = g->x + r * g->n + j;
        for (int t = 0; t < TALL; t++)
            for (int k = 0; k < WIDE; k++)
                sum[t][k] += a[t] * b[k];
    }
    for (int t = 0; t < TALL; t++)
        for (int k = 0; k < WIDE; k++)
            g->h[(i + (size_t)t) * g->n + j + (size_t)k] += sum[t][k];
}

static void gram_edge(const struct gram *g, size_t i, size_t tall, size_t j, size_t wide)
{
    for (size_t t = i; t < i + tall; t++)
        for (size_t k = j; k < j + wide; k++) {
            float sum = 0;
            for (size_t r = 0; r < g->rows; r++)
                sum += g->x[r * g->n + t] * g->x[r * g->n + k];
            g->h[t * g->n + k] += sum;
        }
}

static void gram_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct gram *g = arg;
    (void)thread;
    for (size_t b = begin; b < end; b++) {
        const size_t i = b * TALL, tall = g->n - i < TALL ? g->n - i : TALL;
        for (size_t j = i / WIDE * WIDE; j < g->n; j += WIDE) {
            const size_t wide = g->n - j < WIDE ? g->n - j : WIDE;
            if (tall == TALL && wide == WIDE)
                gram_tile(g, i, j);
            else
                gram_edge(g, i, tall, j, wide);
        }
    }
}

void linalg_gram(const struct workers *w, float *h, const float *x, size_t rows, size_t n)
{
    struct gram g = {h, x, rows, n};
    workers_run(w, gram_rows, &g, (n + TALL - 1) / TALL);
}

/* ---------------------------------------------------------------- h = r r^T, r upper
 *
 * Cholesky's method from the last column to the first: the inverse of r is then the factor of the
 * inverse that is upper triangular, and no full inverse is ever made. */

struct factor {
    float *h;
    size_t n, from, to; /* the current block of columns */
    float *copy;        /* [BLOCK][n] rows of the block, while they are replaced */
};

MULTIVERSION static float dot(const float *a, const float *b, size_t n)
{
    float lane[LANES] = {0};
    double sum = 0;
    size_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += a[k + (size_t)l] * b[k + (size_t)l];
    for (int l = 0; l < LANES; l++)
        sum += (double)lane[l];
    for (; k < n; k++)
        sum += (double)a[k] * (double)b[k];
    return (float)sum;
}

/* For row i: the block's columns; to its right first, then within it. False: no root. */
static bool factor_row(const struct factor *f, size_t i)
{
    float *row = f->h + i * f->n;
    const size_t least = i > f->from ? i : f->from;
    for (size_t j = f->to; j-- > least;) {
        const float *other = f->h + j * f->n;
        const float left = row[j] - dot(row + j + 1, other + j + 1, f->n - j - 1);
        if (i != j) {
            row[j] = left / other[j];
            continue;
        }
        if (!(left > 0))
            return false;
        row[j] = sqrtf(left);
    }
    return true;
}

static void factor_rows(void *arg, int thread, size_t begin, size_t end)
{
    (void)thread;
    for (size_t i = begin; i < end; i++)
        factor_row(arg, i);
}

static int factorise(const struct workers *w, float *h, size_t n)
{
    struct factor f = {.h = h, .n = n};
    for (size_t to = n; to > 0; to = f.from) {
        f.to = to;
        f.from = to > BLOCK ? to - BLOCK : 0;
        for (size_t i = f.to; i-- > f.from;)
            if (!factor_row(&f, i))
                return -1;
        workers_run(w, factor_rows, &f, f.from);
    }
    return 0;
}

/* ---------------------------------------------------------------- the inverse of r */

MULTIVERSION static void add_row(float *to, const float *from, float by, size_t n)
{
    for (size_t k = 0; k < n; k++)
        to[k] += by * from[k];
}

/* Columns [a, b) of the block's rows of the inverse; later rows are complete. */
static void invert_stripe(const struct factor *f, size_t a, size_t b)
{
    const size_t n = f->n;
    for (size_t i = f->to; i-- > f->from;) {
        const float *r = f->copy + (i - f->from) * n;
        float *u = f->h + i * n, sum[STRIPE] = {0};
        for (size_t k = i + 1; k < b; k++) { /* row k begins with its diagonal */
            const size_t from = k > a ? k : a;
            add_row(sum + (from - a), f->h + k * n + from, r[k], b - from);
        }
        for (size_t j = a > i ? a : i; j < b; j++)
            u[j] = j == i ? 1 / r[i] : -sum[j - a] / r[i];
    }
}

static void invert_stripes(void *arg, int thread, size_t begin, size_t end)
{
    const struct factor *f = arg;
    (void)thread;
    for (size_t s = begin; s < end; s++) {
        const size_t a = f->from + s * STRIPE, b = a + STRIPE < f->n ? a + STRIPE : f->n;
        invert_stripe(f, a, b);
    }
}

static void invert(const struct workers *w, float *h, size_t n, float *copy)
{
    struct factor f = {.h = h, .n = n, .copy = copy};
    for (size_t to = n; to > 0; to = f.from) {
        f.to = to;
        f.from = to > BLOCK ? to - BLOCK : 0;
        memcpy(copy, h + f.from * n, (f.to - f.from) * n * sizeof(*h));
        workers_run(w, invert_stripes, &f, (n - f.from + STRIPE - 1) / STRIPE);
    }
}

int linalg_inverse_factor(const struct workers *w, float *h, size_t n)
{
    float *copy = malloc((size_t)BLOCK * n * sizeof(*copy));
    const int rc = copy ? factorise(w, h, n) : -1;
    if (rc == 0)
        invert(w, h, n, copy);
    free(copy);
    return rc;
}
