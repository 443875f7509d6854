/* guard.h - keeps text that users write from becoming control tokens.
 *
 * A prompt is one text, in which the tokenizer replaces the texts of special tokens by these
 * tokens. So a message with the text of an end-of-turn token could end its turn and open another
 * role's. Before a message is rendered, a TOK_GUARD is put inside each such text; the tokenizer
 * then reads it as plain text (TOK_GUARDED), and drops the guard.
 *
 * Guarded are the tokens that structure a prompt: special tokens that the chat template contains,
 * BOS, EOS and padding, and those of fill-in-the-middle. Others keep their meaning, because models
 * are prompted with them: marks of objects and boxes, places in an image, languages.
 * docs/decisions/control-tokens.md */
#ifndef ROUTER_CHAT_GUARD_H
#define ROUTER_CHAT_GUARD_H
#include "common/buf.h"
#include "common/err.h"
#include "common/tokenizer/tokenizer.h"
#include <cjson/cJSON.h>

struct guard {         /* zero-initialise */
    const char **text; /* texts of tokens, owned by the tokenizer, which must outlive the guard */
    uint32_t n, cap;
    bool starts[256]; /* first bytes of these texts */
};
void guard_free(struct guard *g);

/* Adds the tokens of `t` that structure prompts of the template `source` ("": of no template). -1:
 * out of memory. */
int guard_learn(struct guard *g, const struct tokenizer *t, const char *source, struct err *e);

/* Puts guards into the members of `message`: role, name, calls with their arguments, and so on. The
 * content (a string, or the texts of parts) and the reasoning are excepted if the role is
 * assistant, system or developer. -1: out of memory. */
int guard_message(const struct guard *g, cJSON *message);
/* As above, for all strings and names of members inside `tree`: documents, tools, arguments. */
int guard_strings(const struct guard *g, cJSON *tree);

/* Appends s[0..n) with guards. */
void guard_text(const struct guard *g, const char *s, size_t n, struct buf *out);
/* Appends s[0..n) without guards. */
void guard_drop(const char *s, size_t n, struct buf *out);
#endif
