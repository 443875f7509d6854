/* prompt.h - text to prompt ids the way TGI's server does it. */
#ifndef MODEL_SERVER_ENGINE_PROMPT_H
#define MODEL_SERVER_ENGINE_PROMPT_H
#include "common/tokenizer/tokenizer.h"

/* Encode, then keep the last `truncate` ids (0: all): special tokens that the tokenizer puts around
 * a text stay, the text between them loses its beginning. */
int prompt_encode(const struct tokenizer *t, const char *text, size_t n, bool add_special,
                  uint32_t truncate, struct tok_scratch **scratch, struct tok_ids *out,
                  struct err *e);
#endif
