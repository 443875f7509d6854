/* bpe.h - byte pair encoding (Sennrich et al., 2016) as `tokenizers` applies it: of all adjacent
 * pairs the one with the lowest rank merges first, leftmost first among equals.
 *
 * Short pieces are merged by scanning, long ones with a heap; a piece is first broken where no
 * merge can ever reach across, and recent pieces are remembered per thread. */
#ifndef COMMON_TOKENIZER_BPE_H
#define COMMON_TOKENIZER_BPE_H
#include "common/json.h"
#include "common/json_reader.h"
#include "common/tokenizer/sink.h"
#include "common/tokenizer/vocab.h"

struct bpe {
    const struct vocab *vocab;
    struct vocab raw; /* ignore_merges on bytes: whole pieces as byte strings */
    struct bpe_merge {
        uint64_t pair; /* left << 32 | right; UINT64_MAX: free */
        uint32_t rank, id;
    } * merge; /* open addressing */
    uint64_t mask;
    uint32_t merges;
    struct bpe_merge *bytes; /* on_bytes with all bytes known: by left byte << 8 | right byte, rank
                              * UINT32_MAX where they don't merge; else NULL */
    bool on_bytes;           /* the text is raw bytes, the vocabulary spells them (byte_chars.h) */
    bool ignore_merges, fuse_unk, byte_fallback, may_cut;
    uint32_t unk;           /* NO_ID: none */
    char *unk_text;         /* named but not in the vocabulary: an error when needed */
    uint32_t symbol[256];   /* ids of single bytes (on_bytes) or of ASCII characters */
    uint32_t fallback[256]; /* <0x00> .. <0xFF>; all or none are there when byte_fallback */
    char *prefix, *suffix;  /* continuing_subword_prefix, end_of_word_suffix; NULL: none */
    uint8_t touch[256][32]; /* bit: some merge joins a left part ending in byte a and a right part
                             * beginning with byte b */
};

struct bpe_work; /* per thread: word cache, long-piece memory */
struct bpe_work *bpe_work_new(void);
void bpe_work_free(struct bpe_work *w);

/* `j`: the model object without vocab and merges; `merges`: text of the list. `on_bytes` as above.
 */
int bpe_load(struct bpe *b, const struct vocab *v, const cJSON *j, const char *merges, size_t n,
             bool on_bytes, struct err *e);
void bpe_free(struct bpe *b);
/* Tokens of text bytes [start, end) into the sink. */
int bpe_encode(const struct bpe *b, struct bpe_work *w, struct sink *k, uint32_t start,
               uint32_t end, struct err *e);
#endif
