/* repeats.h - DRY ("don't repeat yourself"): lowers scores of tokens that would extend a
 * repetition.
 *
 * Let the last L tokens of the context occur earlier, followed by token t. Generating t would
 * extend the repetition. Its score is lowered by multiplier * base^(L - allowed_length) if L is at
 * least allowed_length, for the longest such match L. A match ends at a break: a token whose text
 * completes a sequence breaker. A following token that is itself a break is not penalised.
 *
 * The rule is p-e-w's (text-generation-webui, pull request 5677) with llama.cpp's parameters;
 * docs/decisions/sampling.md lists the differences. Time is linear in the context. One thread at a
 * time. */
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
    int32_t last_n;         /* length of the context that is searched; -1: all; 0: off */
};

/* The tokens of a context with their breaks. */
struct repeats;
/* Allocates a context of at most `most` tokens. `tok` is borrowed for its lifetime; breakers are
 * copied, empty ones ignored. NULL: out of memory. */
struct repeats *repeats_new(const struct tokenizer *tok, char *const *breakers, size_t n_breakers,
                            uint32_t most, struct err *e);
void repeats_free(struct repeats *r); /* NULL is fine */
/* Appends a token to the context, which holds at most `most`. */
int repeats_push(struct repeats *r, uint32_t id, struct err *e);
/* Lowers the scores in row[vocab]. work[vocab] is scratch memory. */
void repeats_penalise(struct repeats *r, const struct dry *d, float *row, size_t vocab,
                      float *work);
#endif
