/* rows.h - the passes over one row of scores that everything in sampling is made of.
 *
 * Each is one sweep over memory, in 16 lanes. -inf means "not allowed" everywhere; NaN survives
 * into the sums, so that a check of a sum is a check of the whole row. */
#ifndef MODEL_SERVER_SAMPLE_ROWS_H
#define MODEL_SERVER_SAMPLE_ROWS_H
#include <stddef.h>
#include <stdint.h>

float row_max(const float *s, size_t n); /* NaN if there is one; -inf for n == 0 */
/* w[i] = exp(s[i] - max), within 2 ulp; returns the sum. w may be s. */
double row_exp(const float *s, float max, float *w, size_t n);
void row_divide(float *s, float by, size_t n);
/* Bit i of `mask` clear: s[i] = -inf. */
void row_mask(float *s, const uint32_t *mask, size_t n);
#endif
