/* reply_impl.h - what reply.c (text and markers) and reply_call.c (calls) share. */
#ifndef ROUTER_CHAT_REPLY_IMPL_H
#define ROUTER_CHAT_REPLY_IMPL_H
#include "router/chat/reply.h"

enum reply_state {
    CHANNEL_HEADER, /* reply_channels.c, which uses THINKING and CONTENT too */
    CHANNEL_CALL,
    AT_START, /* nothing but white space yet, or behind the reasoning */
    THINKING,
    CONTENT,
    BEHIND_CALL, /* where its closing marker, or another call, is expected */
    CALL_START,  /* from here on: inside a call */
    IN_NAME,     /* a name in front of arguments */
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
    ENOUGH /* a single call was wanted and is there */
};

static inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

void reply_byte(struct reply *r, char c);
void reply_content(struct reply *r, const char *s, size_t n);
/* A piece of this kind goes on, or begins. */
void reply_piece(struct reply *r, enum reply_kind kind);
/* A call may begin; `text` is what led here. */
void call_open(struct reply *r, const char *text, size_t n);
void call_byte(struct reply *r, char c);
void call_end_of_text(struct reply *r);

/* For the ways of writing. The name is there: from here on it is a call, unless no function has it;
 * then the state changes. Takes `name`. */
void call_announce(struct reply *r, char *name);
/* It is no call: what was read since it seemed to begin is content. One that has its name already
 * stays, cut. */
void call_is_none(struct reply *r);
void call_whole(struct reply *r);
struct buf *call_arguments(struct reply *r); /* of the call under way */
const char *call_name(const struct reply *r);

/* Text of one of the two kinds. */
void reply_text(struct reply *r, bool reasoning, const char *s, size_t n);

void channels_begin(struct reply *r);
void channels_byte(struct reply *r, char c);
void channels_end(struct reply *r);
bool channels_marker(const char *s, size_t n);
void tags_byte(struct reply *r, char c);
void tags_name(struct reply *r); /* the name comes next */
void tags_end_of_text(struct reply *r);
void python_byte(struct reply *r, char c);
bool python_begins(char c); /* may a name begin so? */
#endif
