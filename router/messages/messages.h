/* messages.h - Anthropic's Messages API over the same generations: the request read, the answer
 * written. Text only; tools are shown to the chat template. */
#ifndef ROUTER_MESSAGES_MESSAGES_H
#define ROUTER_MESSAGES_MESSAGES_H
#include "router/openai.h"

/* Body -> prompt and sampling in o->asks[0]. `counting`: for /v1/messages/count_tokens, which has
 * no max_tokens. NULL on failure: ERR_SYNTAX, ERR_SHAPE, ERR_TEMPLATE. */
struct openai *messages_parse(struct call *c, bool counting, struct err *e);

/* The conversation as OpenAI's clients would send it: `system` first, tool results as messages of
 * their own. Caller frees; NULL: the body has been failed, or memory. */
cJSON *messages_convert(struct body *b, struct object root);
/* `tools` likewise; NULL (and no failure) where there are none or tool_choice is none. */
cJSON *messages_tools(struct body *b, struct object root);

extern const struct format messages_object, messages_stream;
#endif
