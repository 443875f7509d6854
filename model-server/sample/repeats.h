/* repeats.h - DRY: scores of tokens that would go on with a repetition are lowered.
 *
 * Where the last L tokens of the context stood before, the token that followed them there would
 * make the repetition longer: its score loses multiplier * base^(L - allowed_length), if L is at
 * least allowed_length. L is the longest such match. No match goes beyond a break: a token in whose
 * text a sequence breaker ends. A token that is a break where it followed is left alone.
 *
 * The rule is p-e-w's (text-generation-webui, pull request 5677) with the parameters of llama.cpp;
 * docs/decisions/sampling.md says where the two differ from this. A context of n tokens costs n
 * steps. One thread at a time. */
#ifndef MODEL_SERVER_SAMPLE_REPEATS_H
#define MODEL_SERVER_SAMPLE_REPEATS_H
#include "common/err.h"
#include "common/tokenizer/tokenizer.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dry { /* rows of common/params.def */
    float multiplier, base;
    int32_t allowed_length; /* at least 1 */
    int32_t last_n;         /* only so many tokens are looked at; -1: all; 0: off */
};

/* A context, and which of its tokens are breaks. */
struct repeats;
/* `tok` must outlive it; breakers are copied, empty ones have no effect. Room for `most` tokens is
 * taken here. NULL: no memory. */
struct repeats *repeats_new(const struct tokenizer *tok, char *const *breakers, size_t n_breakers,
                            uint32_t most, struct err *e);
void repeats_free(struct repeats *r); /* NULL is fine */
/* The next token of the context: at most `most` in all. */
int repeats_push(struct repeats *r, uint32_t id, struct err *e);
/* Lower the scores in row[vocab]. `work` [vocab] is written. */
void repeats_penalise(struct repeats *r, const struct dry *d, float *row, size_t vocab,
                      float *work);
#endif
