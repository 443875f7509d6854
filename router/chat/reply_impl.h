/* reply_impl.h - what reply.c (text and markers) and reply_call.c (calls) share. */
#ifndef ROUTER_CHAT_REPLY_IMPL_H
#define ROUTER_CHAT_REPLY_IMPL_H
#include "router/chat/reply.h"

enum reply_state {
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
    LIST_NEXT
};

static inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

void reply_byte(struct reply *r, char c);
void reply_content(struct reply *r, const char *s, size_t n);
/* A call may begin; `text` is what led here. */
void call_open(struct reply *r, const char *text, size_t n);
void call_byte(struct reply *r, char c);
void call_end_of_text(struct reply *r);
#endif
