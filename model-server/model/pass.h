/* pass.h - a part of a step, as a step of its own.
 *
 * What a token computes does not depend on its company, so a large step may be walked through in
 * passes that need less memory. Spans are cut where a pass ends: their first tokens are in the
 * cache, and the state after them in `state_out`, when the rest comes. */
#ifndef MODEL_SERVER_MODEL_PASS_H
#define MODEL_SERVER_MODEL_PASS_H
#include "model-server/backend/backend.h"

/* Where a pass that is to end before token `to` has to end, so that no picture whose tokens see
 * each other is cut: `to`, or more. */
uint32_t pass_end(const struct ragged *b, uint32_t to);

/* Tokens [from, to) of `b`. Its spans and rows of logits go to `spans` and `out_rows`, which have
 * room for to - from of each (and need no more of them than `b` has), and are part of the result.
 */
struct ragged pass_cut(const struct ragged *b, uint32_t from, uint32_t to, struct span *spans,
                       uint32_t *out_rows);
#endif
