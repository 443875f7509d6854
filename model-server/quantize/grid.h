/* grid.h - integer quantisation grids: codes of 2 to 8 bits with a scale, and optionally a zero
 * point, for a group of columns of a row. A number is (code - zero) * scale. */
#ifndef MODEL_SERVER_QUANTIZE_GRID_H
#define MODEL_SERVER_QUANTIZE_GRID_H
#include "model-server/backend/format.h"
#include "model-server/quantize/workers.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grid {
    float scale;
    int zero; /* 0 .. most; symmetric grids: (most + 1) / 2 */
};
struct grid_kind {
    uint32_t bits;  /* 2 to 8 */
    bool symmetric; /* the zero point is the middle */
    enum scale_kind scale;
    bool plain;     /* the grid covers the whole range; no narrower one is tried */
    int least_zero; /* smallest zero point that the layout can store */
};

static inline int grid_most(const struct grid_kind *k) { return (1 << k->bits) - 1; }
static inline int grid_code(const struct grid *g, int most, float x)
{
    const float q = x / g->scale + (float)g->zero;
    return !(q > 0) ? 0 : q >= (float)most ? most : (int)(q + 0.5F);
}
static inline float grid_number(const struct grid *g, int code)
{
    return (float)(code - g->zero) * g->scale;
}

/* Returns the grid whose codes cover low .. high (low <= 0 <= high). */
struct grid grid_range(const struct grid_kind *k, float low, float high);
/* Returns the grid for x[n] with the least weighted sum of squared errors, among ranges from half
 * of its range to all of it. weight[n], or NULL: all 1. If all numbers are 0, the scale is 1. */
struct grid grid_fit(const struct grid_kind *k, const float *x, const float *weight, size_t n);

/* A matrix on such grids. */
struct grid_matrix {
    struct grid_kind kind;
    size_t rows, cols, group; /* group: columns that share a grid, == cols: a row's */
    size_t groups;
    uint8_t *codes;     /* [rows][cols] */
    struct grid *grids; /* [rows][groups] */
    uint32_t *group_of; /* [cols] or NULL: column / group */
};
/* -1: no memory. */
int grid_matrix_init(struct grid_matrix *m, const struct grid_kind *k, size_t rows, size_t cols,
                     size_t group);
void grid_matrix_free(struct grid_matrix *m); /* all zero is fine */
/* Fits the grids of w[rows][cols] and rounds to nearest; weight[cols]: of errors, or NULL. */
void grid_matrix_round(const struct workers *workers, struct grid_matrix *m, const float *w,
                       const float *weight);
/* Dequantises to out[rows][cols]. */
void grid_matrix_numbers(const struct grid_matrix *m, float *out);
#endif
