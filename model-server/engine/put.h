/* put.h - tokens of sequences into the arrays of a step, which is put together in st's working
 * memory; for step.c alone. There is room for what is put. One thread. */
#ifndef MODEL_SERVER_ENGINE_PUT_H
#define MODEL_SERVER_ENGINE_PUT_H
#include "model-server/engine/seq.h"
#include "model-server/engine/step.h"

/* The `len` tokens of `s` from s->start on, one span, behind what `b` has. */
void step_put(struct stepper *st, struct ragged *b, struct seq *s, uint32_t len);
/* Behind the rows of `s`, which are the last ones, its sibling if that is on, and a row of logits
 * for it. Its block is copied by the next step_copy_blocks(). */
void step_put_sibling(struct stepper *st, struct ragged *b, struct seq *s);

/* Block `to` becomes block `from`, with all others that were asked for: at once, before the pass.
 */
void step_copy_block(struct stepper *st, uint32_t from, uint32_t to);
int step_copy_blocks(struct stepper *st, struct err *e);
#endif
