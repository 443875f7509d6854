/* completion.h - a chat request read, and a chat answer written. */
#ifndef ROUTER_CHAT_COMPLETION_H
#define ROUTER_CHAT_COMPLETION_H
#include "router/openai.h"

struct chat_request {
    struct openai *openai;
};

/* Body -> prompt and sampling, in o->asks[0]. ERR_SYNTAX, ERR_SHAPE, ERR_VALIDATION, ERR_TOOL,
 * ERR_TEMPLATE. */
int chat_request_parse(struct call *c, struct chat_request *r, struct err *e);

extern const struct format chat_object, chat_stream;
#endif
