/* pass.h - a part of a step, as a step of its own.
 *
 * A token's result does not depend on the other tokens, so a large step may be computed in passes
 * that need less memory. Spans are divided where a pass ends: for the next pass their first
 * tokens are in the cache, and the state after them is in `state_out`. */
#ifndef MODEL_SERVER_MODEL_PASS_H
#define MODEL_SERVER_MODEL_PASS_H
#include "model-server/backend/backend.h"

/* The end of a pass that would end before token `to`: `to`, or more if an image whose tokens
 * attend to each other would be divided. */
uint32_t pass_end(const struct ragged *b, uint32_t to);

/* Tokens [from, to) of `b`. The spans and output rows of the result are stored in `spans` and
 * `out_rows`, which have a capacity of to - from each (at most those of `b` are needed). */
struct ragged pass_cut(const struct ragged *b, uint32_t from, uint32_t to, struct span *spans,
                       uint32_t *out_rows);

/* The rows of output of `b` as a step of their own, without images. A row is a token of a span of
 * its own, and a row of output. `words` has a capacity of PASS_ROW_WORDS * n_out, `spans` of n_out.
 */
enum { PASS_ROW_WORDS = 4 };
struct ragged pass_rows(const struct ragged *b, uint32_t *words, struct span *spans);
#endif
