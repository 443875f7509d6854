/* wordpiece.h - WordPiece, greedy longest match (BERT), and WordLevel, whole words. */
#ifndef COMMON_TOKENIZER_WORDPIECE_H
#define COMMON_TOKENIZER_WORDPIECE_H
#include "common/json/json.h"
#include "common/tokenizer/sink.h"
#include "common/tokenizer/trie.h"
#include "common/tokenizer/vocab.h"

struct wordpiece {
    const struct vocab *vocab;
    struct trie trie, inner; /* words; continuations without their prefix */
    uint32_t unk;            /* NO_ID: missing, an error when needed */
    int64_t max_chars;
    bool whole;  /* WordLevel: a span is one token or unknown */
    bool marked; /* continuations have a prefix */
};
/* `j`: the model of a tokenizer.json. `v` must outlive it. -1: out of memory. */
int wordpiece_load(struct wordpiece *w, const struct vocab *v, const cJSON *j, bool whole,
                   struct err *e);
void wordpiece_free(struct wordpiece *w);
/* Appends the tokens of bytes [start, end) of the text to `k`. */
int wordpiece_encode(const struct wordpiece *w, struct sink *k, uint32_t start, uint32_t end,
                     struct err *e);
#endif
