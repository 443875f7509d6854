/* gptq.h - GPTQ (Frantar et al., arXiv 2210.17323): columns are rounded one after the other, and
 * the error of each is made up for by those that are still to come, as the second moments of the
 * matrix's inputs say (Hassibi and Stork's Optimal Brain Surgeon, for all rows at once). */
#ifndef MODEL_SERVER_QUANTIZE_GPTQ_H
#define MODEL_SERVER_QUANTIZE_GPTQ_H
#include "common/err.h"
#include "model-server/quantize/grid.h"
#include "model-server/quantize/workers.h"

struct gptq {
    double damp;    /* part of the mean of the diagonal that is added to it */
    bool act_order; /* columns of the largest inputs first; m->group_of is set */
};

/* Codes and grids of `m` (initialised) for w [rows][cols], which is overwritten. h [cols][cols]:
 * the upper triangle of the sum of x x^T over the inputs; left as it was. */
int gptq_quantise(const struct gptq *o, const struct workers *workers, struct grid_matrix *m,
                  float *w, const float *h, struct err *e);
#endif
