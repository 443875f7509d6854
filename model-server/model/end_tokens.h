/* end_tokens.h - the tokens that end a sequence, from the files of a model. */
#ifndef MODEL_SERVER_MODEL_END_TOKENS_H
#define MODEL_SERVER_MODEL_END_TOKENS_H
#include "common/err.h"
#include <stdint.h>

enum { MAX_END_TOKENS = 64 };

/* Reads `eos_token_id` of generation_config.json in the folder `dir`, or else of config.json, into
 * `out`, and their number into *n. Ids outside the vocabulary are left out. No file, or
 * dir = NULL: none. ERR_VALIDATION names a file with another value than integers. */
int end_tokens_read(const char *dir, uint32_t vocab, uint32_t out[MAX_END_TOKENS], uint32_t *n,
                    struct err *e);
#endif
