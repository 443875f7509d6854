/* fim.h - fill-in-the-middle: the tokens that models have for it, and the prompt made of them.
 *
 * Bavarian et al., "Efficient training of language models to fill in the middle", 2022
 * (arXiv 2207.14255): prefix, suffix, middle, each behind a token of its own. */
#ifndef ROUTER_CHAT_FIM_H
#define ROUTER_CHAT_FIM_H
#include "common/tokenizer/tokenizer.h"

enum fim { FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE, FIM_REPO, FIM_FILE, FIM_PAD, FIM_END, FIM_N };

/* The texts of the model's tokens, [FIM_N], by enum fim; those behind FIM_MIDDLE may be NULL. NULL:
 * the vocabulary has no such tokens. The result is static. */
const char *const *fim_style(const struct tokenizer *t);
/* Writes the ids of the tokens that end a middle, at most FIM_N; returns their number. Models write
 * them instead of EOS: CodeLlama its own, others the next file or padding. */
uint32_t fim_ends(const struct tokenizer *t, uint32_t *ids);
#endif
