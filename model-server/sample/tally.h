/* tally.h - token counts of one sequence, and the penalties that use them.
 *
 * The counted context is the request's prompt and its generated tokens. */
#ifndef MODEL_SERVER_SAMPLE_TALLY_H
#define MODEL_SERVER_SAMPLE_TALLY_H
#include "common/err.h"
#include "model-server/backend/draw.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tally { /* zero: empty. A hash table with open addressing, at most half full */
    struct token_count *v;
    uint32_t cap, n; /* cap: a power of two; n: distinct ids */
    uint32_t length; /* tokens of the context */
};

/* Makes room for `distinct` ids, so that tally_add() does not allocate for them. */
int tally_reserve(struct tally *t, uint32_t distinct, struct err *e);
int tally_add(struct tally *t, uint32_t id, bool generated, struct err *e);
void tally_free(struct tally *t);

struct penalties {
    float repetition;       /* every id of the context: s < 0 ? s * p : s / p; 1: off */
    float frequency;        /* TGI's: s -= p * count / length of the context; 0: off */
    float openai_presence;  /* s -= p for every generated id; 0: off */
    float openai_frequency; /* s -= p * count among the generated ones; 0: off */
};
bool penalties_on(const struct penalties *p);
void penalties_apply(const struct penalties *p, const struct tally *t, float *s, size_t vocab);
#endif
