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

struct gptq {
    double damp;    /* fraction of the diagonal's mean that is added to the diagonal */
    bool act_order; /* columns of the largest inputs first; sets m->group_of */
};

/* Computes codes and grids of `m` (initialised) for w[rows][cols], which is overwritten.
 * h[cols][cols]: upper triangle of the sum of x x^T over the inputs; not modified. */
int gptq_quantise(const struct gptq *o, const struct workers *workers, struct grid_matrix *m,
                  float *w, const float *h, struct err *e);
#endif
