/* linalg.h - the matrix operations of GPTQ: sums of outer products, and the factor that it needs.
 *
 * Matrices are row-major fp32, n x n. All operations work in blocks, on the workers' threads. */
#ifndef MODEL_SERVER_QUANTIZE_LINALG_H
#define MODEL_SERVER_QUANTIZE_LINALG_H
#include "model-server/quantize/workers.h"

/* The upper triangle of h += x^T x, x [rows][n]. */
void linalg_gram(const struct workers *w, float *h, const float *x, size_t rows, size_t n);

/* From the upper triangle of a positive definite h, in place: the upper triangular u with
 * inverse(h) = u^T u. The part below the diagonal is not changed. -1: h is not positive definite;
 * its contents are lost then. */
int linalg_inverse_factor(const struct workers *w, float *h, size_t n);
#endif
