/* bad_words.h - converts the words a client forbids to the token sequences that spell them.
 *
 * As in vLLM, each word is stripped of leading white space and tokenized twice: at the start of a
 * text, and after a space. vLLM drops the second spelling if it has another number of tokens or the
 * same first token, so such a word can still be generated. Here both spellings are forbidden. */
#ifndef ROUTER_GENERATE_BAD_WORDS_H
#define ROUTER_GENERATE_BAD_WORDS_H
#include "router/generate/validate.h"

/* Every generated token is compared with all of them. */
enum { MOST_BAD_WORDS = 10000 };

/* Tokenizes q's words into `a`. ERR_VALIDATION for a word of white space only, or of tokens outside
 * the model's vocabulary. */
int bad_words_encode(const struct validator *v, const struct ask *q, struct tok_scratch **scratch,
                     struct arena *a, struct bad_words *out, struct err *e);
#endif
