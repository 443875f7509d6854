#include "model-server/quantize/grid.h"
#include "model-server/backend/numbers.h"
#include <math.h>
#include <stdlib.h>

enum { TRIES = 20 }; /* from the whole range to half of it */

static float stored_scale(const struct grid_kind *k, float scale)
{
    if (k->scale == SCALE_F32)
        return scale;
    if (k->scale == SCALE_BF16)
        return f32_of_bf16(bf16_of_f32(scale));
    scale = f32_of_f16(f16_of_f32(scale));
    return scale > 0 ? scale : 0x1p-24F; /* the smallest number of half precision */
}

struct grid grid_range(const struct grid_kind *k, float low, float high)
{
    const int most = grid_most(k);
    struct grid g;
    if (k->symmetric) {
        g.zero = (most + 1) / 2;
        g.scale = 2 * fmaxf(-low, high) / (float)most;
    } else {
        g.scale = (high - low) / (float)most;
    }
    if (!(g.scale > 0) || !isfinite(g.scale))
        g.scale = 1;
    g.scale = stored_scale(k, g.scale);
    if (!k->symmetric) {
        const float zero = roundf(-low / g.scale);
        g.zero = !(zero > (float)k->least_zero) ? k->least_zero
                 : zero > (float)most           ? most
                                                : (int)zero;
    }
    return g;
}

static double error_of(const struct grid *g, int most, const float *x, const float *weight,
                       size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)(grid_number(g, grid_code(g, most, x[i])) - x[i]);
        sum += d * d * (weight ? (double)weight[i] : 1);
    }
    return sum;
}

struct grid grid_fit(const struct grid_kind *k, const float *x, const float *weight, size_t n)
{
    float low = 0, high = 0;
    for (size_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    struct grid best = grid_range(k, low, high);
    if (k->plain || low == high)
        return best;
    double least = error_of(&best, grid_most(k), x, weight, n);
    for (int t = 1; t <= TRIES; t++) {
        const float part = 1 - 0.5F * (float)t / TRIES;
        const struct grid g = grid_range(k, low * part, high * part);
        const double error = error_of(&g, grid_most(k), x, weight, n);
        if (error < least)
            best = g, least = error;
    }
    return best;
}

int grid_matrix_init(struct grid_matrix *m, const struct grid_kind *k, size_t rows, size_t cols,
                     size_t group)
{
    *m = (struct grid_matrix){.kind = *k,
                              .rows = rows,
                              .cols = cols,
                              .group = group ? group : cols,
                              .groups = group ? (cols + group - 1) / group : 1};
    m->codes = malloc(rows * cols + 1);
    m->grids = malloc((rows * m->groups + 1) * sizeof(*m->grids));
    if (m->codes && m->grids)
        return 0;
    grid_matrix_free(m);
    return -1;
}

void grid_matrix_free(struct grid_matrix *m)
{
    free(m->codes), free(m->grids), free(m->group_of);
    *m = (struct grid_matrix){0};
}

struct rounding {
    struct grid_matrix *m;
    const float *w, *weight;
};

static void round_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct rounding *j = arg;
    struct grid_matrix *m = j->m;
    const float *const w = j->w, *const weight = j->weight;
    (void)thread;
    const int most = grid_most(&m->kind);
    for (size_t r = begin; r < end; r++)
        for (size_t g = 0; g < m->groups; g++) {
            const size_t at = g * m->group, n = m->cols - at < m->group ? m->cols - at : m->group;
            const float *x = w + r * m->cols + at;
            struct grid *grid = &m->grids[r * m->groups + g];
            *grid = grid_fit(&m->kind, x, weight ? weight + at : NULL, n);
            for (size_t i = 0; i < n; i++)
                m->codes[r * m->cols + at + i] = (uint8_t)grid_code(grid, most, x[i]);
        }
}

void grid_matrix_round(const struct workers *workers, struct grid_matrix *m, const float *w,
                       const float *weight)
{
    struct rounding j = {m, w, weight};
    workers_run(workers, round_rows, &j, m->rows);
}

void grid_matrix_numbers(const struct grid_matrix *m, float *out)
{
    for (size_t r = 0; r < m->rows; r++)
        for (size_t c = 0; c < m->cols; c++) {
            const size_t g = m->group_of ? m->group_of[c] : c / m->group;
            out[r * m->cols + c] =
                grid_number(&m->grids[r * m->groups + g], m->codes[r * m->cols + c]);
        }
}
