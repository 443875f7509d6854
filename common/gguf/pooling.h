/* pooling.h - what a GGUF file specifies about vectors and scores, as the files of
 * sentence-transformers and the class in config.json would. */
#ifndef COMMON_GGUF_POOLING_H
#define COMMON_GGUF_POOLING_H
#include "common/gguf/meta.h"

/* Whether a vector is computed of a text: `<architecture>.pooling_type` is a mean, the first token
 * or the last one. Without it an encoder's default applies. */
bool gguf_pools(const struct gguf_set *s);
/* modules.json, 1_Pooling/config.json and those of the dense modules, which the caller deletes.
 * NULL: out of memory, or an unknown architecture (ERR_VALIDATION). */
cJSON *gguf_modules(const struct gguf_set *s, struct err *e);
cJSON *gguf_pooling(const struct gguf_set *s, struct err *e);
cJSON *gguf_dense(const struct gguf_set *s, struct err *e);

/* Adds the class of a classifier and its labels to config.json, if the file has one. */
void gguf_classifier(const struct gguf_meta *m);
#endif
