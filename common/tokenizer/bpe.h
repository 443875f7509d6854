/* bpe.h - byte pair encoding (Sennrich et al., 2016) as in `tokenizers`: of all adjacent pairs the
 * one with the lowest rank is merged first, the leftmost among equals.
 *
 * Short words are merged by scanning, long ones with a heap. A word is first split where no merge
 * can cross. A per-thread cache holds recent words. */
#ifndef COMMON_TOKENIZER_BPE_H
#define COMMON_TOKENIZER_BPE_H
#include "common/json/json.h"
#include "common/json/reader.h"
#include "common/tokenizer/gguf_lists.h"
#include "common/tokenizer/sink.h"
#include "common/tokenizer/vocab.h"

struct bpe {
    const struct vocab *vocab;
    struct vocab raw; /* ignore_merges on bytes: whole words as byte strings */
    struct bpe_merge {
        /* left << 32 | right; UINT64_MAX: free slot */
        uint64_t pair;
        uint32_t rank, id;
    } * merge; /* hash table with open addressing */
    uint64_t mask;
    uint32_t merges;
    /* on_bytes with all bytes known: table by left byte << 8 | right byte, rank UINT32_MAX if they
     * do not merge; otherwise NULL */
    struct bpe_merge *bytes;
    /* the text is raw bytes, and the vocabulary spells them (byte_chars.h) */
    bool on_bytes;
    bool ignore_merges, fuse_unk, byte_fallback, may_cut;
    uint32_t unk;           /* NO_ID: none */
    char *unk_text;         /* configured, but not in the vocabulary: an error when needed */
    uint32_t symbol[256];   /* ids of single bytes (on_bytes) or of ASCII characters */
    uint32_t fallback[256]; /* <0x00> .. <0xFF>; with byte_fallback all exist or none */
    char *prefix, *suffix;  /* continuing_subword_prefix, end_of_word_suffix; NULL: none */
    /* bit set: a merge joins a left part ending in byte a and a right part beginning with byte b */
    uint8_t touch[256][32];
};

struct bpe_work; /* per thread: word cache, memory for long words */
struct bpe_work *bpe_work_new(void);
void bpe_work_free(struct bpe_work *w);

/* Merges in order of their ranks: as the text of a JSON list, or those of a GGUF file. */
struct bpe_merges {
    const char *json;
    size_t n;
    const struct gguf_lists *lists; /* NULL: JSON */
};
/* `j`: the model object without vocab and merges. `on_bytes`: see above. */
int bpe_load(struct bpe *b, const struct vocab *v, const cJSON *j, const struct bpe_merges *merges,
             bool on_bytes, struct err *e);
void bpe_free(struct bpe *b);
/* Appends the tokens of text bytes [start, end) to the sink. */
int bpe_encode(const struct bpe *b, struct bpe_work *w, struct sink *k, uint32_t start,
               uint32_t end, struct err *e);
#endif
