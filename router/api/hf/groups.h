/* groups.h - labelled tokens become labelled words and groups of words, as in transformers'
 * token-classification pipeline. Worker thread. */
#ifndef ROUTER_API_HF_GROUPS_H
#define ROUTER_API_HF_GROUPS_H
#include "common/tokenizer/tokenizer.h"
#include "router/call/call.h"

/* Values of `aggregation_strategy`: each token; neighbours with the same label; the same of words.
 * A word's label is that of its first token, of the mean of its tokens' probabilities, or of the
 * token with the greatest one. */
enum strategy {
    AGGREGATE_NONE,
    AGGREGATE_SIMPLE,
    AGGREGATE_FIRST,
    AGGREGATE_AVERAGE,
    AGGREGATE_MAX
};

struct entity {
    struct tok_text word; /* a token of the vocabulary, or the text of several */
    const float *scores;  /* [labels] of a token: their probabilities */
    uint32_t start, end;  /* its place in the text, half open: bytes, in the answer characters */
    uint32_t index;       /* of a token in its window */
    bool continues;       /* of a token: it belongs to the word of the one before */
    const char *label;    /* set by entities_join(), as is the score */
    float score;
};

/* Gives x[0 .. n) their labels and joins them in place. Returns how many are left; -1: out of
 * memory. Texts of words are in the arena. */
int64_t entities_join(struct call *c, enum strategy s, struct entity *x, uint32_t n);
#endif
