/* outcome.h - what comes of a step: a token, its text and whether it was the last, for each
 * sequence whose last logits are there. Called by step.c in this order, after the forward. */
#ifndef MODEL_SERVER_ENGINE_OUTCOME_H
#define MODEL_SERVER_ENGINE_OUTCOME_H
#include "model-server/engine/draws.h"
#include "model-server/engine/step.h"

static inline bool seq_is_ahead(const struct stepper *st, const struct seq *s)
{
    return st->ahead_no && s->ahead == st->ahead_no;
}

/* Fills st->gen: the sequences that get a token now, or have failed, and which row is theirs. */
void outcome_list(struct stepper *st, struct seq **v, uint32_t n);
/* A token for each of them, chosen by the device or by the host's threads, and behind it one for
 * each draft that is what was chosen before it. The sequences remember them; one that no token can
 * be chosen for fails alone. An error is the device's. */
int outcome_choose(struct stepper *st, struct err *e);
/* All of `v` have come as far as they were planned to. The tokens' texts, and the whole answer's
 * where one was the last; what was chosen behind that is forgotten. */
void outcome_finish(struct stepper *st, struct seq **v, uint32_t n);
#endif
