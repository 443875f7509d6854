/* tokens.h - a text as the list of its tokens, for /tokenize and /chat_tokenize. */
#ifndef ROUTER_CALL_TOKENS_H
#define ROUTER_CALL_TOKENS_H
#include "router/call/call.h"

/* Append [{"id","text","start","stop"}...] to c->out; offsets are bytes of `text`. Worker thread.
 */
int tokens_json(struct call *c, const char *text, size_t n, bool add_special, struct err *e);
/* Append {"count","max_model_len","tokens":[ids],"token_strs"}: vLLM's form. With `pieces` the last
 * member is the tokens' texts, else null. */
int tokens_ids(struct call *c, const char *text, size_t n, bool add_special, bool pieces,
               struct err *e);
/* How many there are. */
int tokens_count(struct call *c, const char *text, size_t n, bool add_special, uint32_t *count,
                 struct err *e);
#endif
