/* tokens.h - a text as the list of its tokens, for /tokenize and /chat_tokenize; and how many a
 * prompt has. */
#ifndef ROUTER_CALL_TOKENS_H
#define ROUTER_CALL_TOKENS_H
#include "router/call/call.h"

/* The text that is tokenized for `q`: its prompt, or, where there are pictures, that with their
 * placeholders; the call's or q's. *special becomes false where the tokenizer adds no special
 * tokens to such a prompt. Errors as media_prompt(). */
int tokens_text(struct call *c, const struct ask *q, const char **text, size_t *n, bool *special,
                struct err *e);
/* Append [{"id","text","start","stop"}...] to c->out; offsets are bytes of `text`. Worker thread.
 */
int tokens_json(struct call *c, const char *text, size_t n, bool add_special, struct err *e);
/* Append {"count","max_model_len","tokens":[ids],"token_strs"}: vLLM's form. With `pieces` the last
 * member is the tokens' texts, else null. */
int tokens_ids(struct call *c, const char *text, size_t n, bool add_special, bool pieces,
               struct err *e);
/* How many the prompt of `q` has. */
int tokens_count(struct call *c, const struct ask *q, bool add_special, uint32_t *count,
                 struct err *e);
#endif
