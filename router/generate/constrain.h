/* constrain.h - parses output constraints in every form that clients send.
 *
 * All forms become one constraint of the ask: a regular expression, a JSON schema or a grammar
 * (common/constraint). A form that cannot be honoured is refused, never ignored. Errors are
 * recorded in the body `b`. */
#ifndef ROUTER_GENERATE_CONSTRAIN_H
#define ROUTER_GENERATE_CONSTRAIN_H
#include "common/constraint/constraint.h"
#include "router/body/body.h"

/* TGI's {"type": "json" | "json_object" | "json_schema" | "regex" | "grammar", "value"} at `key` of
 * `o`. */
void constrain_grammar(struct body *b, struct object o, const char *key, struct ask *q);
/* `response_format` of OpenAI and TGI, vLLM's `guided_*` and `structured_outputs`, and llama.cpp's
 * `json_schema` and `grammar`. */
void constrain_openai(struct body *b, struct object root, struct ask *q);
/* Constrains the answer to instances of `schema`, which is copied. `name`: the client's field, for
 * errors; a literal. */
void constrain_schema(struct body *b, const char *name, const cJSON *schema, struct ask *q);
/* As constrain_schema(), for {"schema": an object, "strict"}. With `strict` objects are closed. */
void constrain_named(struct body *b, const char *name, const cJSON *named, struct ask *q);

/* OpenAI's grammars of custom tools; `syntax` is "lark" or "regex". */
enum constraint_kind constrain_syntax_kind(const char *syntax);
void constrain_syntax(struct body *b, struct object o, const char *key, const char *syntax,
                      const char *definition, struct ask *q);

/* Constrains the answer to tool calls (common/constraint/calls.h). */
void constrain_calls(struct body *b, const cJSON *spec, struct ask *q);
/* Allows the answer as constrained so far, or tool calls. `spec` comes without `answer`, which is
 * added here (CONSTRAINT_CALLS_OR, common/constraint/constraint.h). */
void constrain_or_calls(struct body *b, cJSON *spec, struct ask *q);
/* For `strict` output: JSON without white space between tokens. */
void constrain_compact(struct ask *q);

/* Compiles the constraint, to reject what a shard could not compile. ERR_VALIDATION, which names
 * the client's field on routes that are not TGI's. */
int constrain_check(const struct ask *q, struct err *e);
#endif
