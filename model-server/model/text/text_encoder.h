/* text_encoder.h - the encoder of texts beside a decoder that attends to its rows (T5): ids to
 * rows.
 *
 * It is a second stack of the same checkpoint, on the decoder's device and ranks, without a head.
 * The texts of a pass go through the layers as one ragged batch, each attending to itself alone. So
 * a text's rows do not depend on the others. Every rank gets the same calls, and has all rows. One
 * thread. */
#ifndef MODEL_SERVER_MODEL_TEXT_ENCODER_H
#define MODEL_SERVER_MODEL_TEXT_ENCODER_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

struct text_encoder;
struct decoder; /* model/decoder.h */

/* Loads the encoder of the model in the folder `dir`, whose decoder is `text`. *out is NULL,
 * without an error, if the model has no such encoder. The caller owns *out; `text` must outlive it.
 */
int text_encoder_load(const char *dir, const struct decoder *text, struct text_encoder **out,
                      struct err *e);
void text_encoder_free(struct text_encoder *t); /* NULL is allowed */

struct text_job {
    const uint32_t *ids; /* [n], n > 0 */
    uint32_t n;
    /* Rows of features [][width] that replace the embeddings of ids `stands_for`, in order; NULL:
     * all ids are looked up. */
    const float *given;
    uint32_t stands_for;
    float *out; /* [n][text_encoder_width()] in host memory */
};
/* Starts to encode texts, which go_on() does in parts, between which the decoder may run. `jobs`
 * and all that they name stay valid until it is no longer busy. ERR_VALIDATION: an id is outside
 * the vocabulary. An error ends the work. */
int text_encoder_begin(struct text_encoder *t, const struct text_job *jobs, uint32_t n,
                       struct err *e);
bool text_encoder_busy(const struct text_encoder *t);
/* Continues with about `most` multiply-adds of all ranks; *done: their number. At least one part of
 * a layer is computed. The bits do not depend on the parts. */
int text_encoder_go_on(struct text_encoder *t, uint64_t most, uint64_t *done, struct err *e);
void text_encoder_stop(struct text_encoder *t); /* drops what was begun */

uint32_t text_encoder_width(const struct text_encoder *t);        /* numbers of a row */
uint64_t text_encoder_weight_bytes(const struct text_encoder *t); /* on this rank */
/* Allocates memory for passes of this many ids. A longer text takes more when it comes. */
int text_encoder_reserve(struct text_encoder *t, uint32_t ids, struct err *e);
uint64_t text_encoder_reserve_bytes(const struct text_encoder *t, uint32_t ids);
#endif
