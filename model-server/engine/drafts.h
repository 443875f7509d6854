/* drafts.h - speculative decoding: tokens that are likely to come are put behind the last one, the
 * next forward computes a row of logits for each as well, and as many as the model itself would
 * have chosen are kept.
 *
 * The token at a position is a function of the logits there, the request's parameters, its seed and
 * the position (docs/decisions/sampling.md), and a row's logits do not depend on the other rows
 * (docs/decisions/invariance.md). So a draft is right exactly if it is the token that the model
 * chooses in its place, greedy or not, and no draft can change an answer.
 *
 * Drafts come from the router (a draft model's; seq_offer()) or, where it has none that fit, from
 * what the sequence itself holds (spec/ngram.h) or the model's own draft head (heads.h): which of
 * these two was right more often in this sequence. */
#ifndef MODEL_SERVER_ENGINE_DRAFTS_H
#define MODEL_SERVER_ENGINE_DRAFTS_H
#include "model-server/engine/seq.h"

struct drafting {
    uint32_t most;             /* drafts of one sequence in a step; 0: none at all */
    uint32_t most_rows;        /* and of all together */
    double cost;               /* struct step_worth's */
    struct heads *heads;       /* of the model, which may have none; NULL: they are not asked */
    struct siblings *siblings; /* whom sequences get scratch blocks of; NULL: no siblings */
    uint32_t block_size;       /* drafts need room in the KV cache, and get none of their own */
};

enum { DRAFTS_MOST = 64 }; /* that are offered for one sequence at a time */
/* What `s` may go on with: ids[0..n) from position `at` on, prompt included. The offer before is
 * forgotten. An offer that turns out to be wrong costs time alone. */
int seq_offer(struct seq *s, uint32_t at, const uint32_t *ids, uint32_t n, struct err *e);

/* What the next step of `v` verifies: sets `drafted` and `step` of those that decode. Called once
 * for a step, as late as can be, since more may be offered: before it is run ahead, else before it
 * is run. The same on every rank. An error is the model's, whose head is asked. */
int drafts_plan(const struct drafting *d, struct seq **v, uint32_t n, struct err *e);

/* Rows of logits that the next step yields for `s`. */
static inline uint32_t seq_rows(const struct seq *s)
{
    return seq_prefilling(s) ? 0 : 1 + s->drafted + s->sibling.on;
}
#endif
