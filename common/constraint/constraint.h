/* constraint.h - constrained decoding: which tokens may come next in a text of a given form.
 *
 * A constraint is a regular expression, a JSON schema or a grammar, compiled once and shared by all
 * requests that use it. A state is a number that represents the text generated so far. The
 * automaton is built lazily, one transition at a time, and cached, as are the token masks of
 * visited states. Results depend on nothing else, so equal texts give equal masks on every rank.
 *
 * Thread-safe: each constraint has a lock. */
#ifndef COMMON_CONSTRAINT_CONSTRAINT_H
#define COMMON_CONSTRAINT_CONSTRAINT_H
#include "common/constraint/token_set.h"
#include "common/err.h"
#include "common/model/thought_marks.h"

enum constraint_kind {
    CONSTRAINT_REGEX,        /* the whole answer matches: common/constraint/pattern.h */
    CONSTRAINT_JSON_SCHEMA,  /* the answer is an instance: common/constraint/schema.h */
    CONSTRAINT_JSON_COMPACT, /* as JSON_SCHEMA, without white space between tokens */
    CONSTRAINT_GBNF,         /* the answer is in llama.cpp's grammar: common/constraint/grammar.h */
    CONSTRAINT_LARK,         /* as GBNF, in Lark's notation */
    CONSTRAINT_CALLS,        /* any text that may contain calls: common/constraint/calls.h */
    /* {"answer": {"kind": constraint_kind_name(), "text"}, "ways"}: the answer satisfies that
     * constraint, or consists of calls in one of the ways: calls_or() in common/constraint/calls.h.
     * With CONSTRAINT_CHANNEL_CALLS `schema` replaces `ways`: that of the calls. */
    CONSTRAINT_CALLS_OR
};
enum { CONSTRAINT_KINDS = CONSTRAINT_CALLS_OR + 1 };
const char *constraint_kind_name(enum constraint_kind kind);
/* Reasoning that a model may emit before the constrained text. */
enum constraint_reasoning {
    CONSTRAINT_NO_REASONING,
    CONSTRAINT_MAY_REASON, /* nothing, or an opening marker, any text, the closing marker */
    CONSTRAINT_REASONS,    /* any text, the closing marker: the prompt has opened it */
    /* gpt-oss's channels: messages of the channel analysis, then the constrained text as the
     * message of the channel final. */
    CONSTRAINT_CHANNELS,
    /* As CHANNELS, for a call. The constraint is a JSON schema with `anyOf` of objects. Their
     * `name` is a `const`, the function's name; the other property has the arguments' schema.
     * The call is a message to that function, which contains the arguments only. */
    CONSTRAINT_CHANNEL_CALLS
};
struct constraint_front { /* what may precede the constrained text */
    enum constraint_reasoning reasoning;
    enum thought_marks marks; /* of MAY_REASON and REASONS */
};
struct constraint;

/* Compiles a constraint; the caller gets one reference. ERR_VALIDATION names what in `text` is not
 * supported, and where. */
struct constraint *constraint_new(enum constraint_kind kind, const char *text, size_t n,
                                  struct err *e);
/* As constraint_new(), after optional reasoning and a few blanks. */
struct constraint *constraint_new_behind(struct constraint_front front, enum constraint_kind kind,
                                         const char *text, size_t n, struct err *e);
/* As constraint_new_behind(), compiled on a separate thread: the first use waits. constraint_mask()
 * reports compilation errors. NULL: out of memory. */
struct constraint *constraint_order(struct constraint_front front, enum constraint_kind kind,
                                    const char *text, size_t n, struct err *e);
void constraint_unref(struct constraint *c); /* NULL is allowed */

/* True if the memory for its states is used up: masks of states that are not known yet fail, which
 * a new one with the same text could fill. False while it is compiled, or if that failed. */
bool constraint_full(struct constraint *c);

/* True once a mask or a transition was computed, which waits for the compilation. */
bool constraint_begun(struct constraint *c);
/* Bytes in use, which grow with the states that texts reach. 0 during the compilation. */
size_t constraint_bytes(struct constraint *c);
/* Frees what can be computed again: transitions and masks. The states stay. Not during the
 * compilation. */
void constraint_trim(struct constraint *c);
/* Ends its growth: masks of new states fail, as at its own memory limit. Not during the
 * compilation. */
void constraint_close(struct constraint *c);

typedef uint32_t constraint_state;
enum { CONSTRAINT_DEAD };                 /* the text cannot be completed any more */
#define CONSTRAINT_START (UINT32_MAX - 1) /* empty text */
/* Whether the text can be completed is not known: the bytes after it exceeded the memory or work
 * limits. */
#define CONSTRAINT_SPENT (UINT32_MAX - 2)
/* The state after n more bytes. CONSTRAINT_DEAD and CONSTRAINT_SPENT are final. */
constraint_state constraint_next(struct constraint *c, constraint_state at, const void *bytes,
                                 size_t n);
bool constraint_may_end(struct constraint *c, constraint_state at);

/* Fills mask [(vocabulary + 31) / 32]: bit set = the token may come next. End tokens are allowed
 * where the text may end. ERR_VALIDATION: no token of this vocabulary continues the text, or the
 * constraint exceeds its memory or work limits. ERR_GENERATION: a dead state. ERR_SYSTEM: out of
 * memory; also of later masks, until it is compiled anew. */
int constraint_mask(struct constraint *c, constraint_state at, const struct token_set *tokens,
                    uint32_t *mask, struct err *e);
#endif
