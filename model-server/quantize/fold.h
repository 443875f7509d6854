/* fold.h - scales of inputs that are taken out of a matrix and put into what makes these inputs:
 * the weights of a norm, or the rows of the matrix before. The model stays the same function.
 *
 * AWQ (Lin et al., arXiv 2306.00978): s = mean|x|^a, of all a in 20 steps the one whose rounded
 * matrices give the nearest outputs; then ranges of groups are clipped likewise.
 * SmoothQuant (Xiao et al., arXiv 2211.10438): s = max|x|^0.5 / max|w|^0.5, behind norms. */
#ifndef MODEL_SERVER_QUANTIZE_FOLD_H
#define MODEL_SERVER_QUANTIZE_FOLD_H
#include "common/err.h"

struct run;
struct layer_set;
int fold_awq(struct run *r, struct layer_set *s, struct err *e);
int fold_smooth(struct run *r, struct layer_set *s, struct err *e);
#endif
