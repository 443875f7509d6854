/* rows.h - elementary passes over one row of scores.
 *
 * Each is one sweep over memory in 16 lanes. -inf marks a masked token. NaN propagates into sums,
 * so that checking a sum checks the whole row. */
#ifndef MODEL_SERVER_SAMPLE_ROWS_H
#define MODEL_SERVER_SAMPLE_ROWS_H
#include <stddef.h>
#include <stdint.h>

float row_max(const float *s, size_t n); /* NaN if the row has one; -inf for n == 0 */
/* w[i] = exp(s[i] - max), within 2 ulp. Returns the sum. w may equal s. */
double row_exp(const float *s, float max, float *w, size_t n);
void row_divide(float *s, float by, size_t n);
/* s[i] = -inf where bit i of `mask` is clear. */
void row_mask(float *s, const uint32_t *mask, size_t n);
#endif
