/* memory.h - private to step.c: the arrays of a step, which grow with the largest one so far. All
 * return -1 with ERR_NOMEM if there is no memory; what was in the arrays is then lost. */
#ifndef MODEL_SERVER_ENGINE_STEP_MEMORY_H
#define MODEL_SERVER_ENGINE_STEP_MEMORY_H
#include "model-server/engine/step/step.h"

/* Bytes of the logits of a row. */
uint64_t step_row_bytes(const struct stepper *st);
/* Logits of so many rows, beside those of the run-ahead, which are kept. What is not used is not
 * touched, and takes no memory. */
int step_reserve_logits(struct stepper *st, uint32_t rows, struct err *e);
/* What steps with images need, if one of v[n] has some; after stepper_reserve(). */
int step_reserve_media(struct stepper *st, struct seq *const *v, uint32_t n, struct err *e);
/* Spans, results and alternatives of v[n]. ERR_VALIDATION: too many alternatives. */
int step_reserve_lists(struct stepper *st, struct seq **v, uint32_t n, struct err *e);
#endif
