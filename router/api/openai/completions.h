/* completions.h - OpenAI's /v1/completions: parses requests and writes answers. */
#ifndef ROUTER_API_OPENAI_COMPLETIONS_H
#define ROUTER_API_OPENAI_COMPLETIONS_H
#include "router/api/openai/openai.h"

/* Parses the body into o->asks, one per prompt. NULL on failure: ERR_SYNTAX, ERR_SHAPE, ERR_SUFFIX,
 * ERR_BATCH_SIZE. */
struct openai *completions_parse(struct call *c, struct err *e);

/* Reads a prompt of the body, a string or a list of token ids, into `q`. */
void completions_prompt(struct call *c, struct body *b, const cJSON *v, struct ask *q);

extern const struct format completions_object, completions_stream;
#endif
