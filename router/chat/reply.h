/* reply.h - splits a model's text into reasoning, content and function calls. Pure.
 *
 * It is fed bytes in pieces of any size. Every decision is made per byte, so the pieces do not
 * affect the result. Output is only appended, never taken back, so that it can be streamed. Text
 * that turns out to be no call becomes content in full: nothing is lost. */
#ifndef ROUTER_CHAT_REPLY_H
#define ROUTER_CHAT_REPLY_H
#include "common/buf.h"
#include "common/model/thought_marks.h"
#include "router/chat/format.h"
#include <stdint.h>

enum { REPLY_MAX_CALLS = 128 };

struct reply_call {
    char id[80]; /* nine letters and digits, as Mistral's templates require; or Kimi's own */
    char *name;
    struct buf arguments; /* JSON as the model wrote it */
    bool whole;           /* the model completed it */
};

/* The parts of the answer, in order. */
enum reply_kind { REPLY_REASONING, REPLY_CONTENT, REPLY_CALL };
struct reply_piece {
    enum reply_kind kind;
    /* text: its start in `reasoning` or `content`; it ends where the next of its kind begins */
    size_t from;
    uint32_t call; /* index of the call */
};

struct reply_config {
    const struct call_format *format; /* NULL: calls are not parsed */
    bool forced;                      /* the text consists of calls only */
    bool single;                      /* the answer ends with its first call */
    enum thought_marks thoughts;      /* the markers around reasoning */
    bool may_think;                   /* the opening one at the start opens it */
    bool thinking;                    /* the prompt has already opened it */
    /* the answer is messages in channels; of the members above only `format` and `single` apply */
    bool channels;
    bool joined; /* channels: reasoning is content */
    /* channels: text of the prompt after its last <|start|> marker, valid until reply_init(); or
     * NULL */
    const char *opened;
    const char *const *names; /* declared functions; bare calls of others are content */
    uint32_t n_names;
    /* The types a parameter may have: REPLY_* bits; 0: unknown. Needed where tags contain calls as
     * text. NULL: all are unknown. */
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
    /* private */
    int state, value;
    struct buf held;      /* a (possibly incomplete) marker */
    struct buf raw;       /* bytes since a call began, in case it is none */
    struct buf key, text; /* of the current object; a member's value, or a leading name */
    struct buf early;     /* arguments that preceded the name */
    struct buf closing;   /* the tag that ends the value, where it has the argument's name */
    bool fresh;           /* white space is dropped until other text follows */
    bool in_list, in_string, escaped, announced, streams;
    bool parted;      /* a line break precedes the next text */
    bool unmarked;    /* the call began without the notation's opening marker */
    int level, depth; /* open objects; open brackets inside a value */
    uint64_t objects; /* bit i: the open bracket i is an object's, not a list's */
    char quote;       /* of a Python string */
    unsigned types;   /* of the current argument */
};

/* Begins the answer. `c` is copied; what it points to must outlive the reply. */
void reply_init(struct reply *r, const struct reply_config *c);
/* Parses the next n bytes of the answer. */
void reply_push(struct reply *r, const char *s, size_t n);
/* End of the text: held text becomes content, and an incomplete call stays as it is. */
void reply_end(struct reply *r);
void reply_free(struct reply *r);
/* Is this special token's text a marker, which must be pushed like text? */
bool reply_is_marker(const struct reply *r, const char *s, size_t n);
/* True if there are calls and all are complete. */
bool reply_called(const struct reply *r);
/* True if a single call was requested and is complete: later text is not read. */
bool reply_enough(const struct reply *r);
/* Bytes at the end of the input that are not assigned yet. */
size_t reply_held(const struct reply *r);
/* True if text that arrives now is reasoning. */
bool reply_thinks(const struct reply *r);

/* Iterates over the pieces for streaming: each is opened, grows, and is closed before the next. */
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
    const char *text; /* GREW: the new text or arguments; CLOSED: all of it */
    size_t n;
    const struct reply_call *call; /* NULL: a text piece */
};
/* Returns the next event and advances the cursor; false: none yet. `ended`: no text will follow, so
 * the last piece is closed too. Text belongs to the reply and is valid until it changes. */
bool reply_next(const struct reply *r, struct reply_cursor *at, bool ended,
                struct reply_event *event);
#endif
