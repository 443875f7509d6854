/* messages.h - Anthropic's Messages API: parses requests and writes answers. */
#ifndef ROUTER_API_ANTHROPIC_MESSAGES_H
#define ROUTER_API_ANTHROPIC_MESSAGES_H
#include "router/api/openai/chat_completion.h"

/* Parses the body into prompt and sampling in r->openai->asks[0]. `counting`: for
 * /v1/messages/count_tokens, which has no max_tokens. ERR_SYNTAX, ERR_SHAPE, ERR_TOOL,
 * ERR_TEMPLATE. */
int messages_parse(struct call *c, bool counting, struct chat_request *r, struct err *e);
/* Creates the generation and selects the format. */
int messages_generate(struct call *c, const struct chat_request *r, struct err *e);

/* Converts the body to a chat completion body for chat_prepare(): `system` first, tool results as
 * separate messages, thinking as `reasoning_content`, images as `image_url`. `can_think`: the
 * model's template supports reasoning; `takes_images`: the model takes images. Caller frees;
 * undefined content if the body was failed. */
cJSON *messages_convert(struct body *b, struct object root, bool can_think, bool takes_images);
#endif
