/* fim.h - fill-in-the-middle: the tokens that models have for it, and the prompt made of them.
 *
 * Bavarian et al., "Efficient training of language models to fill in the middle", 2022
 * (arXiv 2207.14255): prefix, suffix, middle, each behind a token of its own. */
#ifndef ROUTER_CHAT_FIM_H
#define ROUTER_CHAT_FIM_H
#include "common/buf.h"
#include "common/tokenizer/tokenizer.h"

enum fim { FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE, FIM_REPO, FIM_FILE, FIM_N };

/* The texts of the model's tokens, [FIM_N], by enum fim; the last two may be NULL. NULL: the
 * vocabulary has no such tokens. The result is static. */
const char *const *fim_style(const struct tokenizer *t);
/* Appends what follows the prefix: the suffix, of n bytes, and the token that the middle follows.
 */
void fim_end(const char *const *style, const char *suffix, size_t n, struct buf *out);
#endif
