/* model_identity.h - which weights and which configuration lie in a folder, as SHA-256 digests.
 * What was made of one model is right for another one only where both are equal. */
#ifndef COMMON_MODEL_IDENTITY_H
#define COMMON_MODEL_IDENTITY_H
#include "common/err.h"
#include <stdint.h>

enum { IDENTITY_BYTES = 32 };

struct model_identity {
    uint8_t content[IDENTITY_BYTES]; /* equal on machines that hold the same checkpoint */
    uint8_t times[IDENTITY_BYTES];   /* when this machine's files changed */
};
/* Of the weights and the configuration in `model`, a folder or a GGUF file. Content: `words` (the
 * rest, in the caller's words), then the names and lengths of the files, the first megabyte of each
 * and a page of every two behind it. */
int model_identity(const char *model, const char *words, struct model_identity *out, struct err *e);
#endif
