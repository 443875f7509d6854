/* prompt.h - converts text to prompt ids as TGI's server does. */
#ifndef MODEL_SERVER_ENGINE_PROMPT_H
#define MODEL_SERVER_ENGINE_PROMPT_H
#include "common/tokenizer/tokenizer.h"

/* Encodes, then keeps the last `truncate` ids (0: all). Special tokens that the tokenizer adds
 * around a text are kept; the text between them loses its beginning. */
int prompt_encode(const struct tokenizer *t, const char *text, size_t n, bool add_special,
                  uint32_t truncate, struct tok_scratch **scratch, struct tok_ids *out,
                  struct err *e);
#endif
