/* noise.h - sampling noise as a pure function of (seed, position, token).
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11), keyed by the
 * seed, gives every token of every position 32 bits of its own. They become an Exp(1) variate E.
 * The token with the smallest E / p is a draw from p. This equals argmax of log p + Gumbel, since
 * -log E is a Gumbel variate, but needs no normalisation and few logarithms. There is no state
 * between calls. A seeded answer therefore does not depend on batch, rank or restart. */
#ifndef MODEL_SERVER_SAMPLE_NOISE_H
#define MODEL_SERVER_SAMPLE_NOISE_H
#include "model-server/backend/draw_math.h"
#include <stddef.h>

/* Each purpose has its own stream of noise. */
enum noise_use { NOISE_TOKEN, NOISE_GREEN_LIST, NOISE_XTC };

/* Writes the noise of tokens first .. first + n - 1 of one position to bits[n]. `first` is a
 * multiple of 4. */
void noise_bits(uint64_t seed, uint64_t position, enum noise_use use, uint32_t first,
                uint32_t *bits, size_t n);
/* Draws a token at `position` and returns its index i. w[i] >= 0 is the weight of token id[i] in
 * any common scale; ids ascend, and id == NULL means token i. SIZE_MAX: no weight is positive. */
size_t noise_draw(const float *w, const uint32_t *id, size_t n, uint64_t seed, uint64_t position);
#endif
