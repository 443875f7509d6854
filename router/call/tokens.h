/* tokens.h - the tokens of a text, for /tokenize and /chat_tokenize, and their number in a
 * prompt. */
#ifndef ROUTER_CALL_TOKENS_H
#define ROUTER_CALL_TOKENS_H
#include "router/call/call.h"

/* The text to tokenize for `q`: its prompt, or with images the prompt with placeholders. Owned by
 * the call or `q`. TOK_ADD_SPECIAL of *flags is cleared if such a prompt gets no special
 * tokens, TOK_GUARDED is set if it has guards.
 * Errors as media_prompt(). */
int tokens_text(struct call *c, const struct ask *q, const char **text, size_t *n, unsigned *flags,
                struct err *e);
/* Appends [{"id","text","start","stop"}...] to c->out; offsets are bytes of `text` without
 * guards. `flags` as for tokenizer_encode(), here and below. Worker
 * thread. */
int tokens_json(struct call *c, const char *text, size_t n, unsigned flags, struct err *e);
/* Appends {"count","max_model_len","tokens":[ids],"token_strs"}: vLLM's format. `pieces`: the last
 * member is a list of the tokens' texts, otherwise null. */
int tokens_ids(struct call *c, const char *text, size_t n, unsigned flags, bool pieces,
               struct err *e);
/* Appends {"tokens":[{"id","piece"}..]}: llama.cpp's format. A piece that is not UTF-8 is a list of
 * its bytes. */
int tokens_pieces(struct call *c, const char *text, size_t n, unsigned flags, struct err *e);
/* Sets *count to the number of tokens in the prompt of `q`. */
int tokens_count(struct call *c, const struct ask *q, bool add_special, uint32_t *count,
                 struct err *e);
#endif
