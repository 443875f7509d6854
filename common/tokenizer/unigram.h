/* unigram.h - the most likely segmentation under a unigram language model (Kudo, 2018), by the
 * Viterbi algorithm, as in sentencepiece and `tokenizers`. */
#ifndef COMMON_TOKENIZER_UNIGRAM_H
#define COMMON_TOKENIZER_UNIGRAM_H
#include "common/json/json.h"
#include "common/tokenizer/sink.h"
#include "common/tokenizer/trie.h"
#include "common/tokenizer/vocab.h"

/* With `from_end` sums of scores are compared from the text's end on; of equal ones that with the
 * longest first token counts. A character without a token has UNIGRAM_UNKNOWN, whatever other
 * scores are, and a token with UNIGRAM_NEVER or less is none (PLaMo 2). */
#define UNIGRAM_UNKNOWN (-1e7)
#define UNIGRAM_NEVER   (-2e7)

struct unigram {
    const struct vocab *vocab;
    double *score; /* by id; natural logarithms */
    double unk_score;
    struct trie trie;
    uint32_t unk; /* NO_ID: none */
    bool byte_fallback, from_end;
    uint32_t fallback[256];
};
struct unigram_work; /* per thread */
void unigram_work_free(struct unigram_work *w);

/* `score`: by id; ownership is taken, also on failure. */
int unigram_load(struct unigram *u, const struct vocab *v, double *score, const cJSON *j,
                 struct err *e);
void unigram_free(struct unigram *u);
int unigram_encode(const struct unigram *u, struct unigram_work **w, struct sink *k, uint32_t start,
                   uint32_t end, struct err *e);
#endif
