/* bad_words.h - from the words a client does not want to the tokens that spell them.
 *
 * As vLLM: each word is taken without white space in front and tokenized as it stands at the start
 * of a text and, with a blank in front, as it stands inside of one. vLLM leaves the second spelling
 * out where it has another number of tokens or begins alike, so that the word may still be said;
 * here both count. */
#ifndef ROUTER_GENERATE_BAD_WORDS_H
#define ROUTER_GENERATE_BAD_WORDS_H
#include "router/generate/validate.h"

/* Every token looks at all of them. */
enum { MOST_BAD_WORDS = 10000 };

/* q's words, in `a`. ERR_VALIDATION for a word of white space alone, or of tokens that the model
 * has not. */
int bad_words_encode(const struct validator *v, const struct ask *q, struct tok_scratch **scratch,
                     struct arena *a, struct bad_words *out, struct err *e);
#endif
