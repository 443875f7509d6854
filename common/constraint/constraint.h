/* constraint.h - what a generated text must look like, and which tokens may come next.
 *
 * A constraint is a regular expression or a JSON schema, compiled once and shared by all requests
 * that ask for it. A state is a number: what was generated so far, as far as it matters. The
 * automaton is built while it is walked, one transition at a time, and kept; so are the masks of
 * the states that were asked for. Nothing depends on who asks or when: equal texts lead to equal
 * masks on every rank.
 *
 * Thread-safe: a constraint locks itself. */
#ifndef COMMON_CONSTRAINT_CONSTRAINT_H
#define COMMON_CONSTRAINT_CONSTRAINT_H
#include "common/constraint/token_set.h"
#include "common/err.h"

enum constraint_kind {
    CONSTRAINT_REGEX,      /* the whole answer matches: common/constraint/pattern.h */
    CONSTRAINT_JSON_SCHEMA /* the answer is an instance: common/constraint/schema.h */
};
struct constraint;

/* ERR_VALIDATION says what in `text` cannot be promised, and where. One reference is the
 * caller's. */
struct constraint *constraint_new(enum constraint_kind kind, const char *text, size_t n,
                                  struct err *e);
struct constraint *constraint_ref(struct constraint *c);
void constraint_unref(struct constraint *c); /* NULL is fine */

typedef uint32_t constraint_state;
enum { CONSTRAINT_DEAD }; /* the text cannot become right any more */
constraint_state constraint_start(const struct constraint *c);
/* The state behind n more bytes. CONSTRAINT_DEAD for ever after a wrong one. */
constraint_state constraint_next(struct constraint *c, constraint_state at, const void *bytes,
                                 size_t n);
bool constraint_may_end(struct constraint *c, constraint_state at);

/* mask [(vocabulary + 31) / 32]: bit set = the token may come next. End tokens may come where the
 * text may end. ERR_GENERATION: nothing may come (the state is dead, or no token of this vocabulary
 * spells a way on), or the constraint outgrew its memory or the work a mask may take. */
int constraint_mask(struct constraint *c, constraint_state at, const struct token_set *tokens,
                    uint32_t *mask, struct err *e);
#endif
