/* noise.h - sampling noise as a pure function of (seed, position, token).
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11) keyed by the
 * seed gives every token of every position its own 32 bits, and those an Exp(1) variate E. The
 * token with the smallest E / p is a draw from p: the same race as argmax of log p + Gumbel, since
 * -log E is a Gumbel variate, but it needs no normalisation and hardly any logarithm. Nothing is
 * remembered between calls, so a seeded answer depends neither on the batch, nor the rank, nor on a
 * restart. */
#ifndef MODEL_SERVER_SAMPLE_NOISE_H
#define MODEL_SERVER_SAMPLE_NOISE_H
#include "model-server/backend/draw_math.h"
#include <stddef.h>

/* What the bits are for: different purposes never share noise. */
enum noise_use { NOISE_TOKEN, NOISE_GREEN_LIST, NOISE_XTC };

/* bits[i] for tokens first .. first + n of one position; first is a multiple of 4. */
void noise_bits(uint64_t seed, uint64_t position, enum noise_use use, uint32_t first,
                uint32_t *bits, size_t n);
/* Index of the token drawn at `position` from weights w[i] >= 0 (any common scale) of tokens id[i],
 * ascending; id == NULL: token i. SIZE_MAX if no weight is positive. */
size_t noise_draw(const float *w, const uint32_t *id, size_t n, uint64_t seed, uint64_t position);
#endif
