/* gptq.h - GPTQ (Frantar et al., arXiv 2210.17323).
 *
 * Columns are rounded one after the other. The remaining columns compensate the error of each, by
 * the second moments of the matrix's inputs (Hassibi and Stork's Optimal Brain Surgeon, for all
 * rows at once). */
#ifndef MODEL_SERVER_QUANTIZE_GPTQ_H
#define MODEL_SERVER_QUANTIZE_GPTQ_H
#include "common/err.h"
#include "model-server/quantize/grid.h"
#include "model-server/quantize/workers.h"

/* The order in which columns are rounded. Those with the largest inputs first leave the most
 * columns to compensate the errors that matter most. */
enum gptq_order {
    GPTQ_STORED, /* as stored; the grid of a group is fitted when its first column is due */
    GPTQ_STATIC, /* largest inputs first; all grids are fitted before, so groups stay in place */
    GPTQ_GROUPS, /* largest inputs first, which also form the groups (desc_act): sets m->group_of */
};
struct gptq {
    double damp; /* fraction of the diagonal's mean that is added to the diagonal */
    enum gptq_order order;
};

/* Computes codes and grids of `m` (initialised) for w[rows][cols], which is overwritten.
 * h[cols][cols]: upper triangle of the sum of x x^T over the inputs; not modified. */
int gptq_quantise(const struct gptq *o, const struct workers *workers, struct grid_matrix *m,
                  float *w, const float *h, struct err *e);
#endif
