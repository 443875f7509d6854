/* put.h - appends tokens of sequences to the arrays of a step in st's working memory. Private to
 * step.c. The caller guarantees the capacity. One thread. */
#ifndef MODEL_SERVER_ENGINE_PUT_H
#define MODEL_SERVER_ENGINE_PUT_H
#include "model-server/engine/seq.h"
#include "model-server/engine/step/step.h"

/* Appends the `len` tokens of `s` from s->start on as one span. */
void step_put(struct stepper *st, struct ragged *b, struct seq *s, uint32_t len);
/* Appends the sibling of `s`, if it has one, with a row of logits. The rows of `s` must be the
 * last ones. The next step_copy_blocks() copies its block. */
void step_put_sibling(struct stepper *st, struct ragged *b, struct seq *s);

/* Records a copy of block `from` to block `to`. step_copy_blocks() executes all recorded copies at
 * once, before the pass. */
void step_copy_block(struct stepper *st, uint32_t from, uint32_t to);
int step_copy_blocks(struct stepper *st, struct err *e);
#endif
