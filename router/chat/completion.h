/* completion.h - a chat request read, and a chat answer written. */
#ifndef ROUTER_CHAT_COMPLETION_H
#define ROUTER_CHAT_COMPLETION_H
#include "router/chat/reply.h"
#include "router/chat/tools.h"
#include "router/openai.h"

struct chat_request {
    struct openai *openai;
    struct tools tools;
    struct chat_style style;
    struct reply_config reply; /* how the answer is taken apart */
    bool split, hide_reasoning;
};

/* Body -> prompt and sampling, in o->asks[0]. ERR_SYNTAX, ERR_SHAPE, ERR_VALIDATION, ERR_TOOL,
 * ERR_TEMPLATE. */
int chat_request_parse(struct call *c, struct chat_request *r, struct err *e);
/* Make the generations and choose the format. */
int chat_generate(struct call *c, const struct chat_request *r, struct err *e);

/* answer_parts.c: answers that are taken apart, o->parts[i] for each generation */
struct chat_part;
int chat_parts_new(struct call *c, const struct chat_request *r, struct err *e);
void chat_parts_take(struct openai *o, const struct generation *g, const struct gen_event *ev);
/* "role" and what is new since the last delta; false: nothing is. */
bool chat_parts_delta(struct openai *o, const struct generation *g, struct buf *out);
void chat_parts_message(const struct openai *o, const struct generation *g, struct buf *out);
bool chat_parts_called(const struct openai *o, const struct generation *g);
#endif
