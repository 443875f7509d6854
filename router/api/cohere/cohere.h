/* cohere.h - Cohere's chat API, version 2: parses requests and writes answers.
 *
 * Follows the public API reference of `POST /v2/chat`. Messages, tools and images have the form of
 * OpenAI's, with three differences that request.c converts: `tool_plan`, content of type `thinking`
 * and content of type `document`. */
#ifndef ROUTER_API_COHERE_COHERE_H
#define ROUTER_API_COHERE_COHERE_H
#include "router/api/openai/chat_completion.h"

/* request.c: parses the body into prompt and sampling, in r->openai->asks[0]. ERR_SYNTAX,
 * ERR_SHAPE, ERR_TOOL, ERR_TEMPLATE. Worker thread. */
int cohere_chat_parse(struct call *c, struct chat_request *r, struct err *e);
/* answer.c: creates the generation and selects the format. */
int cohere_chat_generate(struct call *c, const struct chat_request *r, struct err *e);
#endif
