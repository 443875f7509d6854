/* tokenizer_impl.h - private to this module: what a loaded tokenizer is made of. */
#ifndef COMMON_TOKENIZER_TOKENIZER_IMPL_H
#define COMMON_TOKENIZER_TOKENIZER_IMPL_H
#include "common/tokenizer/added.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/decoder.h"
#include "common/tokenizer/step.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/unigram.h"
#include "common/tokenizer/wordpiece.h"

enum model_kind { MODEL_BPE, MODEL_UNIGRAM, MODEL_WORDPIECE, MODEL_WORDLEVEL };

/* One place of a pair: a special token, or one of the texts. */
enum post_text { POST_SPECIAL, POST_FIRST, POST_SECOND };
struct post_item {
    enum post_text text;
    uint32_t id; /* POST_SPECIAL */
    uint8_t type;
};

/* What the post-processor puts around a text, and how it trims offsets. */
struct post {
    uint32_t *before, *after; /* special tokens */
    uint32_t before_n, after_n;
    struct post_item *pair; /* of two texts: [pair_n], both once */
    uint32_t pair_n;
    bool trim, keep_first; /* ByteLevel: white space is no part of a token's offsets, except
                            * where a prefix space was added in front of the text */
};

struct tokenizer {
    uint64_t stamp; /* tells one tokenizer from another that was loaded at the same address */
    struct vocab vocab;
    struct added added;
    struct steps normalizer, pre; /* pre-tokenizer */
    enum model_kind kind;
    struct bpe bpe;
    struct unigram unigram;
    struct wordpiece wordpiece;
    struct post post;
    struct decoder decoder;
    bool needs_offsets;          /* a step asks where in the original it stands */
    cJSON *config, *special_map; /* tokenizer_config.json, special_tokens_map.json; NULL: none */
};

struct tok_scratch {
    uint64_t stamp; /* of the tokenizer that bpe's cache belongs to */
    struct step_work steps;
    struct bpe_work *bpe;
    struct unigram_work *unigram;
};

/* load.c: from the text of a tokenizer.json */
struct tokenizer *tokenizer_load_text(const char *s, size_t n, struct err *e);

/* post.c */
int post_load(struct post *p, const cJSON *j, struct err *e);
void post_free(struct post *p);
#endif
