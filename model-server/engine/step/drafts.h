/* drafts.h - speculative decoding: likely next tokens (drafts) are appended after the last token.
 * The next forward pass also computes a row of logits for each draft. Drafts are accepted as long
 * as the model samples the same tokens.
 *
 * The token at a position is a function of its logits, the request's parameters, its seed and the
 * position (docs/decisions/sampling.md). A row's logits do not depend on other rows
 * (docs/decisions/invariance.md). So a draft is accepted exactly if the model samples the same
 * token, greedy or not, and no draft can change an answer.
 *
 * Drafts come from the router (a draft model's; seq_offer()). If the router sent none that match,
 * they come from n-grams of the sequence (spec/ngram.h) or from the model's draft head (heads.h).
 * The source that was right more often in this sequence is used. */
#ifndef MODEL_SERVER_ENGINE_DRAFTS_H
#define MODEL_SERVER_ENGINE_DRAFTS_H
#include "model-server/engine/seq.h"

struct drafting {
    uint32_t most;       /* limit of drafts per sequence and step; 0: no drafts */
    uint32_t most_rows;  /* and of all together */
    double cost;         /* struct step_worth's */
    struct heads *heads; /* the model's draft heads, possibly none; NULL: heads do not draft */
    struct siblings *siblings; /* owner of the scratch blocks for siblings; NULL: no siblings */
    uint32_t block_size;       /* drafts use only blocks that a sequence already has */
};

enum { DRAFTS_MOST = 64 }; /* most drafts that seq_offer() stores per sequence */
/* Stores likely tokens of `s`: ids[0..n) from position `at` on, prompt included. Replaces an
 * earlier offer. A wrong offer costs only time. -1: out of memory. */
int seq_offer(struct seq *s, uint32_t at, const uint32_t *ids, uint32_t n, struct err *e);

/* Plans what the next step of `v` verifies: sets `drafted` and `step` of the decoding sequences.
 * Call it once per step, as late as possible, because more drafts may arrive: before the step's
 * run-ahead, or else before the step. The result is the same on every rank. -1: an error of the
 * draft head's pass. */
int drafts_plan(const struct drafting *d, struct seq **v, uint32_t n, struct err *e);

/* Rows of logits that the next step computes for `s`. */
static inline uint32_t seq_rows(const struct seq *s)
{
    return seq_prefilling(s) ? 0 : 1 + s->drafted + s->sibling.on;
}
#endif
