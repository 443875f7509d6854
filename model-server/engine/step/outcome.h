/* outcome.h - results of a step: a token, its text and the end of the sequence, for each sequence
 * with logits. step.c calls these functions in this order after the forward pass. */
#ifndef MODEL_SERVER_ENGINE_OUTCOME_H
#define MODEL_SERVER_ENGINE_OUTCOME_H
#include "model-server/engine/step/draws.h"
#include "model-server/engine/step/step.h"

static inline bool seq_is_ahead(const struct stepper *st, const struct seq *s)
{
    return st->ahead_no && s->ahead == st->ahead_no;
}

/* Fills st->gen with the sequences that get a token or have failed, and their rows. */
void outcome_list(struct stepper *st, struct seq **v, uint32_t n);
/* Samples a token for each of them, on the device or on the host's threads, and one more after each
 * accepted draft. The sequences store them. A sequence without a valid token fails alone. -1: an
 * error of the device. */
int outcome_choose(struct stepper *st, struct err *e);
/* Completes the step of v[n]: decodes the texts of the tokens, and the whole answer of finished
 * sequences. Tokens sampled after an end are dropped. */
void outcome_finish(struct stepper *st, struct seq **v, uint32_t n);
#endif
