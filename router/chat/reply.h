/* reply.h - what a model's text says: reasoning, content, calls of functions. Pure.
 *
 * Fed with bytes in any pieces. Every decision is taken byte by byte, so that how the text is split
 * changes nothing; what has been appended to a result is never taken back, so that a stream sends
 * what is new. Text that turns out to be no call is content, whole: nothing is lost. */
#ifndef ROUTER_CHAT_REPLY_H
#define ROUTER_CHAT_REPLY_H
#include "common/buf.h"
#include "router/chat/format.h"
#include <stdint.h>

enum { REPLY_MAX_CALLS = 128 };

struct reply_call {
    char id[10]; /* nine letters and digits: Mistral's templates take no other */
    char *name;
    struct buf arguments; /* JSON, as the model wrote it */
    bool whole;           /* the model finished it */
};

struct reply_config {
    const struct call_format *format; /* NULL: calls are not looked for */
    bool forced;                      /* the text is nothing but calls */
    bool may_think;                   /* "<think>" at the beginning opens reasoning */
    bool thinking;                    /* the prompt opened it already */
    const char *const *names;         /* functions there are; bare calls of others are content */
    uint32_t n_names;
};

struct reply { /* zero-initialise, then reply_init() */
    struct reply_config config;
    struct buf reasoning, content;
    struct reply_call *calls;
    uint32_t n_calls;
    bool oom;
    /* its own */
    int state, value;
    struct buf held;      /* may be (the beginning of) a marker */
    struct buf raw;       /* since a call began: content, should it be none */
    struct buf key, text; /* of the object being read; a member's value, or a name in front */
    struct buf early;     /* arguments that came before the name */
    bool fresh;           /* white space is dropped until something else comes */
    bool in_list, in_string, escaped, announced, streams;
    int level, depth; /* objects entered; brackets open inside a value */
};

void reply_init(struct reply *r, const struct reply_config *c);
void reply_push(struct reply *r, const char *s, size_t n);
/* The text is over: what was held back is content, a call that was cut stays as it is. */
void reply_end(struct reply *r);
void reply_free(struct reply *r);
/* Is this special token's text one of the markers, which must be pushed like text? */
bool reply_is_marker(const struct reply *r, const char *s, size_t n);
/* There are calls, and all were finished. */
bool reply_called(const struct reply *r);
#endif
