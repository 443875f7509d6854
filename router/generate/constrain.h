/* constrain.h - what an answer must look like, in each way in which clients say it.
 *
 * All ways end in one constraint of the ask: a regular expression, a JSON schema or a grammar
 * (common/constraint). A form that cannot be honoured is refused, never ignored. */
#ifndef ROUTER_GENERATE_CONSTRAIN_H
#define ROUTER_GENERATE_CONSTRAIN_H
#include "common/constraint/constraint.h"
#include "router/body/body.h"

/* TGI's {"type": "json" | "json_object" | "json_schema" | "regex" | "grammar",
 * "value"} at `key` of `o`. */
void constrain_grammar(struct body *b, struct object o, const char *key, struct ask *q);
/* `response_format` as OpenAI and TGI have it, vLLM's `guided_*` and `structured_outputs`, and
 * llama.cpp's `json_schema` and `grammar`. */
void constrain_openai(struct body *b, struct object root, struct ask *q);
/* The answer is to be an instance of `schema`, which is copied. */
void constrain_schema(struct body *b, const cJSON *schema, struct ask *q);
/* The same of {"schema": an object, "strict"}: with `strict` it is read as closed. */
void constrain_named(struct body *b, const cJSON *named, struct ask *q);

/* OpenAI's grammars of custom tools: `syntax` is "lark" or "regex". */
void constrain_syntax(struct body *b, struct object o, const char *key, const char *syntax,
                      const char *definition, struct ask *q);

/* Calls in the answer (common/constraint/calls.h). */
void constrain_calls(struct body *b, const cJSON *spec, struct ask *q);
/* The answer as it is constrained already, or calls: `spec` without its `answer`, which is added
 * (CONSTRAINT_CALLS_OR, common/constraint/constraint.h). */
void constrain_or_calls(struct body *b, cJSON *spec, struct ask *q);
/* What was asked for is `strict`: JSON without white space between its tokens. */
void constrain_compact(struct ask *q);

/* Compile what was asked for, to know that a shard can. ERR_VALIDATION. */
int constrain_check(const struct ask *q, struct err *e);
#endif
