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
    CONSTRAINT_REGEX,        /* the whole answer matches: common/constraint/pattern.h */
    CONSTRAINT_JSON_SCHEMA,  /* the answer is an instance: common/constraint/schema.h */
    CONSTRAINT_JSON_COMPACT, /* the same without white space between tokens */
    CONSTRAINT_GBNF,         /* the answer is of llama.cpp's grammar: common/constraint/grammar.h */
    CONSTRAINT_LARK,         /* the same in Lark's notation */
    CONSTRAINT_CALLS,        /* any text, and calls in it: common/constraint/calls.h */
    /* {"answer": {"kind": constraint_kind_name(), "text"}, "ways"}: the answer is constrained so,
     * or is nothing but calls in one of the ways: calls_or(), common/constraint/calls.h. Behind
     * CONSTRAINT_CHANNEL_CALLS it has `schema` in place of `ways`: the calls' */
    CONSTRAINT_CALLS_OR
};
enum { CONSTRAINT_KINDS = CONSTRAINT_CALLS_OR + 1 };
const char *constraint_kind_name(enum constraint_kind kind);
/* What a model that thinks aloud may write before the text that is constrained. */
enum constraint_reasoning {
    CONSTRAINT_NO_REASONING,
    CONSTRAINT_MAY_REASON, /* nothing, or "<think>", anything, "</think>" */
    CONSTRAINT_REASONS,    /* anything, "</think>": it has begun already */
    /* gpt-oss's channels: messages of the channel analysis, then the constrained text as a message
     * of the channel final */
    CONSTRAINT_CHANNELS,
    /* the same in front of a call: the constraint is a JSON schema with `anyOf`, of objects whose
     * `name` is a `const`, the function's name, and whose other property is its arguments' schema;
     * it becomes a message to that function, whose text is the arguments alone */
    CONSTRAINT_CHANNEL_CALLS
};
struct constraint;

/* ERR_VALIDATION says what in `text` cannot be promised, and where. One reference is the
 * caller's. */
struct constraint *constraint_new(enum constraint_kind kind, const char *text, size_t n,
                                  struct err *e);
/* The same behind reasoning and a few blanks. */
struct constraint *constraint_new_behind(enum constraint_reasoning reasoning,
                                         enum constraint_kind kind, const char *text, size_t n,
                                         struct err *e);
/* The same, by a thread of its own: who wants something of it first waits. What cannot be promised
 * is what constraint_mask() says then. NULL: out of memory. */
struct constraint *constraint_order(enum constraint_reasoning reasoning, enum constraint_kind kind,
                                    const char *text, size_t n, struct err *e);
struct constraint *constraint_ref(struct constraint *c);
void constraint_unref(struct constraint *c); /* NULL is fine */

typedef uint32_t constraint_state;
enum { CONSTRAINT_DEAD };                 /* the text cannot become right any more */
#define CONSTRAINT_START (UINT32_MAX - 1) /* nothing was written yet */
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
