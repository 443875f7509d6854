/* prompt.h - the prompt of a request, when the server composes it from texts of a client. */
#ifndef ROUTER_CALL_PROMPT_H
#define ROUTER_CALL_PROMPT_H
#include "common/arena.h"
#include "common/err.h"
#include "common/tokenizer/tokenizer.h"
#include "router/request/ask.h"

/* Sets the prompt of `q` to text[0..n), which may have guards (router/chat/guard.h); copies are in
 * `a`. -1: out of memory. */
int prompt_set(struct arena *a, const char *text, size_t n, struct ask *q, struct err *e);

/* The tokens that end a middle (fim_ends()) also end the answer of `q`. -1: out of memory. */
int prompt_ends_middle(struct arena *a, const struct tokenizer *t, struct ask *q, struct err *e);
#endif
