#include "model-server/quantize/gptq.h"
#include "common/multiversion.h"
#include "model-server/quantize/linalg.h"
#include <stdlib.h>
#include <string.h>

/* A block of BLOCK columns is complete before its error is passed on to the columns after it. */
enum { BLOCK = 128, TILE = 16, DAMP_TRIES = 8 };

struct column {
    float weight;
    uint32_t at;
};

static int heavier(const void *a, const void *b)
{
    const struct column *x = a, *y = b;
    return x->weight != y->weight ? (x->weight > y->weight ? -1 : 1)
                                  : (x->at > y->at) - (x->at < y->at);
}

/* order[i]: the column that is rounded as the i-th. */
static int order_columns(const struct gptq *o, const float *h, size_t n, uint32_t *order)
{
    struct column *c = malloc(n * sizeof(*c));
    if (!c)
        return -1;
    for (size_t i = 0; i < n; i++)
        c[i] = (struct column){h[i * n + i], (uint32_t)i};
    if (o->order != GPTQ_STORED)
        qsort(c, n, sizeof(*c), heavier);
    for (size_t i = 0; i < n; i++)
        order[i] = c[i].at;
    free(c);
    return 0;
}

/* u = h in that order, with a damped diagonal; a column without inputs has only the damping
 * term. */
static void damped(float *u, const float *h, size_t n, const uint32_t *order, double damp)
{
    double mean = 0;
    for (size_t i = 0; i < n; i++)
        mean += (double)h[i * n + i] / (double)n;
    const float add = (float)(mean > 0 ? damp * mean : 1);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) {
            const size_t a = order[i], b = order[j];
            u[i * n + j] = h[a < b ? a * n + b : b * n + a] + (i == j ? add : 0);
        }
}

static int factor(const struct gptq *o, const struct workers *w, float *u, const float *h, size_t n,
                  const uint32_t *order)
{
    double damp = o->damp;
    for (int t = 0; t < DAMP_TRIES; t++, damp *= 4) {
        damped(u, h, n, order, damp);
        if (linalg_inverse_factor(w, u, n) == 0)
            return 0;
    }
    return -1;
}

/* ---------------------------------------------------------------- rows */

struct job {
    struct grid_matrix *m;
    float *w;              /* [rows][cols], columns in order */
    const float *u;        /* [cols][cols] */
    const uint32_t *order; /* [cols] */
    bool fitted;           /* GPTQ_STATIC: all grids are fitted */
};

MULTIVERSION static void take_off(float *to, const float *from, float by, size_t n)
{
    for (size_t k = 0; k < n; k++)
        to[k] -= by * from[k];
}

/* Rounds column i of a row: stores its code and returns the error divided by the factor's
 * diagonal. */
static float round_one(const struct job *j, size_t row, size_t i, float *w, size_t end)
{
    struct grid_matrix *m = j->m;
    const size_t group = (j->fitted ? j->order[i] : i) / m->group;
    struct grid *grid = &m->grids[row * m->groups + group];
    if (!j->fitted && i % m->group == 0) {
        const size_t n = m->cols - i < m->group ? m->cols - i : m->group;
        *grid = grid_fit(&m->kind, w + i, NULL, n);
    }
    const int code = grid_code(grid, grid_most(&m->kind), w[i]);
    // NOLINTNEXTLINE(clang-analyzer-core.Undefined*): order_columns() fills all of it
    m->codes[row * m->cols + j->order[i]] = (uint8_t)code;
    const float *u = j->u + i * m->cols;
    const float error = (w[i] - grid_number(grid, code)) / u[i];
    take_off(w + i + 1, u + i + 1, error, end - i - 1);
    return error;
}

/* A grid is fitted to the current values of its group's columns. So no group may begin inside a
 * block and end after it: a block ends with a group, or lies within a longer one. */
static void rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct job *j = arg;
    const size_t n = j->m->cols, group = j->m->group;
    float errors[TILE][BLOCK] = {{0}};
    (void)thread;
    for (size_t first = begin; first < end; first += TILE) {
        const size_t tile = end - first < TILE ? end - first : TILE;
        for (size_t at = 0, to; at < n; at = to) {
            to = at + BLOCK;
            if (!j->fitted && group < n && to / group != at / group &&
                to % group) /* end with a group */
                to = to / group * group > at ? to / group * group : to;
            to = to < n ? to : n;
            for (size_t r = 0; r < tile; r++)
                for (size_t i = at; i < to; i++)
                    errors[r][i - at] = round_one(j, first + r, i, j->w + (first + r) * n, to);
            for (size_t i = at; i < to; i++)
                for (size_t r = 0; r < tile; r++)
                    take_off(j->w + (first + r) * n + to, j->u + i * n + to, errors[r][i - at],
                             n - to);
        }
    }
}

/* Permutes the columns of w into that order, in place. */
static int permute(float *w, size_t n_rows, size_t n, const uint32_t *order)
{
    float *line = malloc(n * sizeof(*line));
    for (size_t r = 0; line && r < n_rows; r++) {
        for (size_t i = 0; i < n; i++)
            line[i] = w[r * n + order[i]];
        memcpy(w + r * n, line, n * sizeof(*line));
    }
    const int rc = line ? 0 : -1;
    free(line);
    return rc;
}

/* Before the first column: fits grids or forms groups, and permutes w. */
static int arrange(const struct gptq *o, const struct workers *workers, struct job *j)
{
    struct grid_matrix *m = j->m;
    if (o->order == GPTQ_STORED)
        return 0;
    if (o->order == GPTQ_STATIC) {
        grid_matrix_round(workers, m, j->w, NULL); /* for the grids */
        j->fitted = true;
    } else {
        if (!(m->group_of = malloc(m->cols * sizeof(*m->group_of))))
            return -1;
        for (size_t i = 0; i < m->cols; i++)
            m->group_of[j->order[i]] = (uint32_t)(i / m->group);
    }
    return permute(j->w, m->rows, m->cols, j->order);
}

int gptq_quantise(const struct gptq *o, const struct workers *workers, struct grid_matrix *m,
                  float *w, const float *h, struct err *e)
{
    const size_t n = m->cols;
    uint32_t *order = malloc(n * sizeof(*order));
    float *u = calloc(n * n, sizeof(*u));
    struct job j = {m, w, u, order, false};
    int rc = -1;
    if (!order || !u || order_columns(o, h, n, order) || arrange(o, workers, &j))
        err_nomem(e);
    else if (factor(o, workers, u, h, n, order))
        err_set(e, ERR_VALIDATION,
                "the second moments of %zu inputs are not finite: is the model's output?", n);
    else {
        workers_run(workers, rows, &j, m->rows);
        rc = 0;
    }
    free(order), free(u);
    return rc;
}
