/* bias.h - what a request adds to the logits of some tokens: OpenAI's logit_bias, LMTP's masks.
 *
 * A list of pairs, kept as it came: a mask of half a vocabulary costs one pass over its entries. An
 * id that is there twice is added twice. */
#ifndef MODEL_SERVER_SAMPLE_BIAS_H
#define MODEL_SERVER_SAMPLE_BIAS_H
#include "common/err.h"
#include <stddef.h>
#include <stdint.h>

struct bias { /* zero: none */
    uint32_t *id;
    float *value;
    size_t n;
};

/* A copy whose ids are all below `vocab` and whose values are finite; at most `vocab` entries.
 * ERR_VALIDATION. */
int bias_copy(struct bias *out, const struct bias *from, size_t vocab, struct err *e);
void bias_free(struct bias *b);
void bias_apply(const struct bias *b, float *row);
#endif
