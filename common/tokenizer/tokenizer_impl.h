/* tokenizer_impl.h - private: the layout of a loaded tokenizer. */
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

/* One element of a pair template: a special token, or one of the texts. */
enum post_text { POST_SPECIAL, POST_FIRST, POST_SECOND };
struct post_item {
    enum post_text text;
    uint32_t id; /* POST_SPECIAL */
    uint8_t type;
};

/* The post-processor: special tokens around a text, and trimming of offsets. */
struct post {
    uint32_t *before, *after; /* special tokens */
    uint8_t *after_types;     /* [after_n]: XLNet's last token has a type of its own */
    uint32_t before_n, after_n;
    struct post_item *pair; /* for two texts: [pair_n], each text once */
    uint32_t pair_n;
    /* ByteLevel: white space is excluded from a token's offsets, except for a prefix space added to
     * the text */
    bool trim, keep_first;
};

struct tok_lazy; /* lazy.c */
struct tokenizer {
    uint64_t stamp; /* distinguishes tokenizers loaded at the same address */
    struct vocab vocab;
    struct added added;
    struct steps normalizer, pre; /* pre-tokenizer */
    enum model_kind kind;
    struct bpe bpe;
    struct unigram unigram;
    struct wordpiece wordpiece;
    struct post post;
    struct decoder decoder;
    bool needs_offsets;          /* a step needs positions in the original text */
    struct tok_lazy *lazy;       /* NULL: everything is loaded */
    cJSON *config, *special_map; /* tokenizer_config.json, special_tokens_map.json; NULL: none */
};

struct tok_scratch {
    uint64_t stamp; /* of the tokenizer that filled bpe's cache */
    struct step_work steps;
    struct bpe_work *bpe;
    struct unigram_work *unigram;
};

/* load.c: loads from the text of a tokenizer.json */
struct tokenizer *tokenizer_load_text(const char *s, size_t n, struct err *e);

/* lazy.c: what is loaded at the first need. NULL: out of memory. */
struct tok_lazy *lazy_new(const char *dir, struct err *e);
void lazy_free(struct tok_lazy *l);
/* `t` itself, or the whole tokenizer instead of a lazy one, which owns it. Any thread. NULL: the
 * errors of tokenizer_load(). */
const struct tokenizer *tokenizer_whole(const struct tokenizer *t, struct err *e);

/* post.c */
int post_load(struct post *p, const cJSON *j, struct err *e);
void post_free(struct post *p);
#endif
