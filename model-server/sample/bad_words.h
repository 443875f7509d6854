/* bad_words.h - token sequences that an answer must not contain (vLLM's `bad_words`).
 *
 * A token that would complete a word is masked. Only generated tokens are matched, not the prompt.
 * Other tokenizations of the same text are not matched; the router lists them as further words. */
#ifndef MODEL_SERVER_SAMPLE_BAD_WORDS_H
#define MODEL_SERVER_SAMPLE_BAD_WORDS_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bad_words {   /* zero: no words */
    uint32_t *id;    /* [n_ids] the words, concatenated */
    uint32_t *len;   /* [n] tokens of each word */
    size_t n_ids, n; /* total tokens; words */
    bool looks_back; /* some word has several tokens; set by bad_words_copy() */
};

/* Copies `from` into `out`, which the caller frees. ERR_VALIDATION: a word is empty, or a token id
 * is not below `vocab`. */
int bad_words_copy(struct bad_words *out, const struct bad_words *from, uint32_t vocab,
                   struct err *e);
void bad_words_free(struct bad_words *b);
/* Writes the tokens that may not follow generated[0..n_generated) to out[b->n] and returns their
 * count. Ids may repeat. `generated` is read only if `looks_back` is set. */
size_t bad_words_next(const struct bad_words *b, const uint32_t *generated, size_t n_generated,
                      uint32_t *out);
/* Sets row[id] = -inf for the same tokens. */
void bad_words_forbid(const struct bad_words *b, const uint32_t *generated, size_t n_generated,
                      float *row);
#endif
