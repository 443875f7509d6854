/* options_words.h - what answers depend on beside the model's files, types and adapters, in words.
 *
 * Ranks of a group must have the same options. A stream may move from one replica to another, so
 * there the products must be equal, too. */
#ifndef MODEL_SERVER_OPTIONS_WORDS_H
#define MODEL_SERVER_OPTIONS_WORDS_H
#include "model-server/serve_config.h"

struct options_words {
    char options[256];  /* as flags, "--kv-cache-dtype int8 ..."; with their effective values */
    char products[160]; /* backend_ops.arithmetic of the device */
};
/* Fills out->options. `kv`: type of the KV cache. */
void options_words(const struct serve_config *c, enum kv_dtype kv, struct options_words *out);
#endif
