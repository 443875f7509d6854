/* fold.h - moves scales of a matrix's input columns into the operation that computes these inputs:
 * the weights of a norm, or the rows of the preceding matrix. The model's function is unchanged.
 *
 * AWQ (Lin et al., arXiv 2306.00978): s = mean|x|^a, with the a of a 20-step grid whose quantised
 * matrices give the nearest outputs; then the ranges of groups are clipped by the same search.
 * SmoothQuant (Xiao et al., arXiv 2211.10438): s = max|x|^0.5 / max|w|^0.5, behind norms. */
#ifndef MODEL_SERVER_QUANTIZE_FOLD_H
#define MODEL_SERVER_QUANTIZE_FOLD_H
#include "common/err.h"

struct run;
struct layer_set;
int fold_awq(struct run *r, struct layer_set *s, struct err *e);
int fold_smooth(struct run *r, struct layer_set *s, struct err *e);
#endif
