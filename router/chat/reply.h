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
    char id[80]; /* nine letters and digits, since Mistral's templates take no other; or Kimi's */
    char *name;
    struct buf arguments; /* JSON, as the model wrote it */
    bool whole;           /* the model finished it */
};

/* What was said, in the order in which it was said. */
enum reply_kind { REPLY_REASONING, REPLY_CONTENT, REPLY_CALL };
struct reply_piece {
    enum reply_kind kind;
    size_t from;   /* text: where it begins in `reasoning` or `content`; it ends where the next of
                      its kind begins */
    uint32_t call; /* which of the calls */
};

struct reply_config {
    const struct call_format *format; /* NULL: calls are not looked for */
    bool forced;                      /* the text is nothing but calls */
    bool single;                      /* the answer ends with its first call */
    bool may_think;                   /* "<think>" at the beginning opens reasoning */
    bool thinking;                    /* the prompt opened it already */
    bool channels;                    /* the answer is messages in channels; of the members above
                                         only `format` and `single` matter */
    bool joined;                      /* channels: reasoning is content */
    const char *opened;               /* channels: what the prompt says behind its last <|start|>
                                         marker, to be kept until reply_init(); or NULL */
    const char *const *names;         /* functions there are; bare calls of others are content */
    uint32_t n_names;
    /* What a function's parameter may be: REPLY_* bits; 0: unknown. Needed where calls are written
     * in tags, as text. NULL: all are unknown. */
    unsigned (*types)(const void *of, const char *function, const char *parameter);
    const void *types_of;
};
enum { REPLY_STRING = 1, REPLY_NULL = 2, REPLY_OTHER = 4 };

struct reply { /* zero-initialise, then reply_init() */
    struct reply_config config;
    struct buf reasoning, content;
    struct reply_call *calls;
    uint32_t n_calls;
    struct reply_piece *pieces; /* only the last one grows */
    uint32_t n_pieces;
    bool oom;
    /* its own */
    int state, value;
    struct buf held;      /* may be (the beginning of) a marker */
    struct buf raw;       /* since a call began: content, should it be none */
    struct buf key, text; /* of the object being read; a member's value, or a name in front */
    struct buf early;     /* arguments that came before the name */
    bool fresh;           /* white space is dropped until something else comes */
    bool in_list, in_string, escaped, announced, streams;
    bool parted;      /* a line break comes before what is said next */
    int level, depth; /* objects entered; brackets open inside a value */
    char quote;       /* of a string of Python's */
    unsigned types;   /* of the argument being read */
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
/* A single call was asked for, and it is there: what follows is not read. */
bool reply_enough(const struct reply *r);
/* Bytes at the end of what was pushed that are neither content nor anything else yet. */
size_t reply_held(const struct reply *r);
/* The text that comes now is reasoning. */
bool reply_thinks(const struct reply *r);

/* The pieces as a stream tells them: each is opened, grows, and is closed before the next. */
struct reply_cursor { /* zero-initialise */
    uint32_t piece;
    size_t sent;
    bool open;
};
enum reply_what { REPLY_OPENED, REPLY_GREW, REPLY_CLOSED };
struct reply_event {
    enum reply_what what;
    uint32_t index; /* of the piece */
    enum reply_kind kind;
    const char *text; /* GREW: the new part of the text or arguments; CLOSED: the whole */
    size_t n;
    const struct reply_call *call; /* NULL: text */
};
/* The next event behind the cursor, which moves; false: there is none yet. `ended`: nothing more
 * will come, so that the last piece is closed, too. The text belongs to the reply and is valid
 * until it changes. */
bool reply_next(const struct reply *r, struct reply_cursor *at, bool ended,
                struct reply_event *event);
#endif
