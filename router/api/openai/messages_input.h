/* messages_input.h - vLLM's `messages` as the input of a route that embeds. */
#ifndef ROUTER_API_OPENAI_MESSAGES_INPUT_H
#define ROUTER_API_OPENAI_MESSAGES_INPUT_H
#include "router/call/embed_body.h"

/* True if the body has `messages`: the chat template renders them to the only input of `ask`, which
 * has no prompt of sentence-transformers then. Faults fail the body. */
bool messages_input(struct call *c, struct body *b, struct texts_ask *ask);
#endif
