/* acceptance.h - how many draft tokens a step should verify.
 *
 * A step of R rows takes 1 + cost * (R - 1) times as long as one of a single row. Verifying the
 * j-th draft of a sequence adds a row and, if drafts of that kind are accepted with probability p,
 * p^j tokens. It is worth its row as long as the step's tokens per time grow: so many drafts when
 * one sequence decodes alone and rows are nearly free, none when the batch fills the machine.
 *
 * Everything here is a function of tokens and of `cost`, on which the ranks agreed: all of them
 * verify the same. */
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
    DRAFT_SIBLING, /* the second-best one in the place of the first */
    DRAFT_KINDS
};
enum draft_kind draft_kind_of(uint32_t match); /* by an n-gram of that many tokens; ngram.h */

struct acceptance { /* of one sequence */
    float rate[DRAFT_KINDS];
};
struct acceptance acceptance_new(void);
/* `verified` drafts, of which the first `accepted` were right; verified > 0. */
void acceptance_learn(struct acceptance *a, enum draft_kind k, uint32_t verified,
                      uint32_t accepted);
/* There were drafts, and none was verified: what is thought of them fades, so that they get another
 * chance. */
void acceptance_fade(struct acceptance *a, enum draft_kind k);

/* What the j-th draft of that kind is expected to bring; j counts from 1. */
double draft_gain(const struct acceptance *a, enum draft_kind k, uint32_t j);

/* A step as it is put together. */
struct step_worth {
    double cost;         /* of another row, in parts of what a step of one takes */
    double extra;        /* and what the making of drafts took so far */
    double rows, tokens; /* so far; tokens: that it is expected to bring */
};
/* Is another row worth it that brings `tokens`? */
bool worth_row(const struct step_worth *w, double tokens);
/* Is a pass of a draft head worth it that takes `cost`, for drafts in `rows` rows that bring
 * `tokens` together? */
bool worth_pass(const struct step_worth *w, double cost, uint32_t rows, double tokens);
#endif
