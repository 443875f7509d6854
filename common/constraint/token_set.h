/* token_set.h - the texts of a vocabulary as a trie, so that tokens with a common prefix are tested
 * together.
 *
 * The trie over the tokens' bytes is stored in depth-first order: a wrong byte skips all tokens
 * below it. Immutable; shared by all constraints of a model. */
#ifndef COMMON_CONSTRAINT_TOKEN_SET_H
#define COMMON_CONSTRAINT_TOKEN_SET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct token_text {
    const char *bytes; /* what the token adds to the text */
    uint32_t n;        /* 0: never allowed (control tokens, holes) */
};

struct token_set;
/* `text` [vocab] is not kept. Tokens in `end` [n_end] end the text. NULL: out of memory. */
struct token_set *token_set_new(const struct token_text *text, uint32_t vocab, const uint32_t *end,
                                uint32_t n_end);
void token_set_free(struct token_set *t); /* NULL is allowed */
#endif
