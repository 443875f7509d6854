/* acceptance.h - how many draft tokens a step should verify.
 *
 * A step of R rows takes 1 + cost * (R - 1) times as long as one of a single row. Verifying the
 * j-th draft of a sequence adds a row and, if drafts of that kind are accepted with probability
 * p, p^j tokens. The row pays as long as the step's tokens per time grow. So there are many
 * drafts if one sequence decodes alone and rows are nearly free, and none if the batch saturates
 * the machine.
 *
 * Everything here is a function of tokens and of `cost`, on which the ranks agreed: all of them
 * verify the same drafts. */
#ifndef MODEL_SERVER_SPEC_ACCEPTANCE_H
#define MODEL_SERVER_SPEC_ACCEPTANCE_H
#include <stdbool.h>
#include <stdint.h>

/* Where drafts come from; each kind is accepted at its own rate. */
enum draft_kind {
    DRAFT_OFFERED,
    DRAFT_SHORT_MATCH,
    DRAFT_MATCH,
    DRAFT_LONG_MATCH,
    DRAFT_HEAD,    /* of the checkpoint's own head */
    DRAFT_SIBLING, /* the second-best token in place of the first draft */
    DRAFT_KINDS
};
/* for an n-gram match of that many tokens; ngram.h */
enum draft_kind draft_kind_of(uint32_t match);

struct acceptance { /* of one sequence */
    float rate[DRAFT_KINDS];
    uint8_t losses[DRAFT_KINDS]; /* verified in vain since one was accepted, at most 3 */
    /* one was accepted; before that a step verifies a single draft of an n-gram match */
    bool proven[DRAFT_KINDS];
};
struct acceptance acceptance_new(void);
/* `verified` drafts, of which the first `accepted` were right; verified > 0. */
void acceptance_learn(struct acceptance *a, enum draft_kind k, uint32_t verified,
                      uint32_t accepted);
/* There were drafts, and none was verified: the rate moves back to its initial value, so that
 * they get another chance. It moves half as fast after each of the last `losses`. So drafts that
 * are never right cost less than 3 % at any cost of a row. */
void acceptance_fade(struct acceptance *a, enum draft_kind k);

/* Expected tokens of the j-th draft of that kind; j counts from 1. */
double draft_gain(const struct acceptance *a, enum draft_kind k, uint32_t j);

/* A step under construction. */
struct step_worth {
    double cost;         /* of another row, relative to a step of one row */
    double extra;        /* time of making drafts so far, in the same unit */
    double rows, tokens; /* so far; tokens: expected number */
};
/* True if another row that adds `tokens` pays. */
bool worth_row(const struct step_worth *w, double tokens);
/* True if a pass of a draft head pays: it takes `cost`, for drafts in `rows` rows that add
 * `tokens` together. */
bool worth_pass(const struct step_worth *w, double cost, uint32_t rows, double tokens);
#endif
