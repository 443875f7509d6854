/* rope.h - rows of cosines and sines for the positions of a step.
 *
 * On the host. A row depends on the position and, with some scalings, on the length of the
 * sequence. Rows of a fixed table are computed once and kept. One thread. */
#ifndef MODEL_SERVER_MODEL_ROPE_H
#define MODEL_SERVER_MODEL_ROPE_H
#include "model-server/model/spec/decoder_spec.h"

/* Inverse frequencies [spec->dim / 2] for a sequence of `length` tokens, in fp32 as in the
 * reference. */
void rope_inv_freq(const struct rope_spec *spec, uint32_t length, float *inv);

/* True if the frequencies of some length below max_positions (0: any) differ from those of length
 * 0. */
bool rope_by_length(const struct rope_spec *spec, uint32_t max_positions);

/* One set of frequencies and `rows` [cap][dim] of positions from 0, the first n of them computed.
 */
struct rope_table {
    float inv[ROPE_MAX_DIM / 2];
    float *rows;
    uint32_t n, cap;
};
struct rope {
    const struct rope_spec *spec;
    struct rope_table shorter, longer; /* up to spec->original tokens, and LONGROPE beyond */
};

/* Keeps rows of positions below max_positions (0: a usual number). `spec` must outlive it. */
void rope_init(struct rope *r, const struct rope_spec *spec, uint32_t max_positions);
/* Multiplies the frequencies by[spec->dim / 2]; before any rows. Not with ROPE_DYNAMIC. */
void rope_multiply(struct rope *r, const float *by);
void rope_free(struct rope *r);
/* out[n_tokens][dim]: dim/2 cosines, then dim/2 sines, times the attention factor. Cannot fail:
 * if a table cannot be allocated, each row is computed. */
void rope_rows(struct rope *r, const struct ragged *b, float *out);
#endif
