/* reply_impl.h - private to the reply_*.c files: parser states and functions they share. */
#ifndef ROUTER_CHAT_REPLY_IMPL_H
#define ROUTER_CHAT_REPLY_IMPL_H
#include "router/chat/reply.h"

enum reply_state {
    CHANNEL_HEADER, /* reply_channels.c, which also uses THINKING and CONTENT */
    CHANNEL_CALL,
    AT_START, /* only white space so far, or after the reasoning */
    THINKING,
    CONTENT,
    BEHIND_CALL, /* after a call: its closing marker or another call follows */
    CALL_START,  /* states from here on are inside a call */
    IN_NAME,     /* a name before the arguments */
    MEMBER,
    KEY,
    COLON,
    VALUE_START,
    VALUE,
    LIST_NEXT,
    TAG_NAME_OPEN, /* reply_tags.c */
    TAG_NAME,
    TAG_BETWEEN,
    TAG_KEY,
    TAG_VALUE_OPEN,
    TAG_VALUE,
    PY_NAME, /* reply_python.c */
    PY_KEY,
    PY_VALUE,
    QUOTED_HEAD, /* reply_quoted.c */
    QUOTED_KEY_START,
    QUOTED_KEY,
    QUOTED_KEY_TEXT,
    QUOTED_COLON,
    QUOTED_VALUE_START,
    QUOTED_BARE,
    QUOTED_TEXT,
    QUOTED_NEXT,
    ENOUGH /* a single call was requested and is complete */
};

static inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* Parses a byte in any state; the state decides which of the functions below gets it. */
void reply_byte(struct reply *r, char c);
/* Appends content. */
void reply_content(struct reply *r, const char *s, size_t n);
/* Continues or begins a piece of this kind. */
void reply_piece(struct reply *r, enum reply_kind kind);
/* A call may begin; `text` is what preceded the decision. */
void call_open(struct reply *r, const char *text, size_t n);
/* A byte, or the end of the text, inside a call (states from CALL_START on). */
void call_byte(struct reply *r, char c);
void call_end_of_text(struct reply *r);

/* The name is complete: from here on it is a call, unless no function has this name; then the state
 * changes. Takes ownership of `name`. */
void call_announce(struct reply *r, char *name);
/* It is not a call: the text since its apparent start becomes content. A call whose name was
 * announced stays, incomplete. */
void call_reject(struct reply *r);
void call_complete(struct reply *r);
/* The name was announced; c opens the object of arguments, which ends the call. */
void call_object(struct reply *r, char c);
struct buf *call_arguments(struct reply *r); /* of the current call */
const char *call_name(const struct reply *r);

/* Appends reasoning or content. */
void reply_text(struct reply *r, bool reasoning, const char *s, size_t n);

/* reply_channels.c: answers in channels; channels_begin() parses config.opened. */
void channels_begin(struct reply *r);
void channels_byte(struct reply *r, char c);
void channels_end(struct reply *r);
bool channels_marker(const char *s, size_t n); /* is this text one of its markers? */
/* reply_tags.c and reply_python.c: calls in tags, and as Python writes them. */
void tags_byte(struct reply *r, char c);
void tags_name(struct reply *r); /* the name follows */
void tags_end_of_text(struct reply *r);
enum { MAX_ENDS = 3 };
/* Scans one byte for the texts `ends` (NULL: none). Bytes outside them go to `to` (NULL: dropped);
 * returns a complete one. */
const char *tags_scan(struct reply *r, const char *const ends[MAX_ENDS], char c, struct buf *to);
/* Appends one byte of a JSON string, escaped. */
void tags_escape(struct buf *out, char c);
void python_byte(struct reply *r, char c);
bool python_begins(char c); /* may a name begin with c? */
/* JSON's spelling of True, False, None; NULL: s[0..n) is another word. */
const char *python_word(const char *s, size_t n);
/* Appends a Python literal as JSON; false: a string has no end. What is no literal gives no JSON.
 */
bool python_to_json(const char *s, size_t n, struct buf *out);
/* reply_nested.c: appends a value of nested tags, each after `mark`, as JSON; false: it does not
 * begin with one. */
bool nested_to_json(const char *mark, const char *s, size_t n, struct buf *out);
/* reply_quoted.c: objects with quotes of the format. */
void quoted_begins(struct reply *r);
void quoted_byte(struct reply *r, char c);
void quoted_end_of_text(struct reply *r); /* inside a text: the bytes held back are part of it */
#endif
