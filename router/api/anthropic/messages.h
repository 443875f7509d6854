/* messages.h - Anthropic's Messages API over the same generations: the request read, the answer
 * written. */
#ifndef ROUTER_API_ANTHROPIC_MESSAGES_H
#define ROUTER_API_ANTHROPIC_MESSAGES_H
#include "router/api/openai/chat_completion.h"

/* Body -> prompt and sampling in r->openai->asks[0]. `counting`: for /v1/messages/count_tokens,
 * which has no max_tokens. ERR_SYNTAX, ERR_SHAPE, ERR_TOOL, ERR_TEMPLATE. */
int messages_parse(struct call *c, bool counting, struct chat_request *r, struct err *e);
/* Make the generation and choose the format. */
int messages_generate(struct call *c, const struct chat_request *r, struct err *e);

/* The body as OpenAI's clients would send it (chat_prepare()): `system` first, tool results as
 * messages of their own, thinking as `reasoning_content`, images as `image_url`. `can_think`: the
 * model's template knows reasoning; `eyes`: the model takes images. Caller frees; worthless when
 * the body has been failed. */
cJSON *messages_convert(struct body *b, struct object root, bool can_think, bool eyes);
#endif
