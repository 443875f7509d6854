/* bias.h - per-request additions to logits: OpenAI's logit_bias, LMTP's masks.
 *
 * A bias is an unsorted list of (id, value). Applying it is one pass over its entries. The values
 * of a repeated id add up. */
#ifndef MODEL_SERVER_SAMPLE_BIAS_H
#define MODEL_SERVER_SAMPLE_BIAS_H
#include "common/err.h"
#include <stddef.h>
#include <stdint.h>

struct bias { /* zero: empty */
    uint32_t *id;
    float *value;
    size_t n;
};

/* Copies `from` into `out`, which the caller frees. ERR_VALIDATION: an id is not below `vocab`, a
 * value is not finite, or there are more than `vocab` entries. */
int bias_copy(struct bias *out, const struct bias *from, size_t vocab, struct err *e);
void bias_free(struct bias *b);
/* row[id] += value for each entry. */
void bias_apply(const struct bias *b, float *row);
#endif
