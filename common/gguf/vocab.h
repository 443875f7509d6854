/* vocab.h - the vocabulary of a GGUF file. Views into the file. */
#ifndef COMMON_GGUF_VOCAB_H
#define COMMON_GGUF_VOCAB_H
#include "common/gguf/gguf.h"

/* tokenizer.ggml.token_type: what a token of the vocabulary is. CONTROL: special, not part of a
 * text. USER_DEFINED: matched whole, before the text is split. BYTE: stands for one byte of a
 * character that the vocabulary lacks. */
enum gguf_token {
    GGUF_NORMAL = 1,
    GGUF_UNKNOWN,
    GGUF_CONTROL,
    GGUF_USER_DEFINED,
    GGUF_UNUSED,
    GGUF_BYTE,
};

/* How a byte-level tokenizer splits a text into words: a value of tokenizer.ggml.pre. */
enum { GGUF_PRE_STEPS = 7 };
struct gguf_pre_step {
    enum gguf_cut {
        GGUF_CUT_END,
        GGUF_CUT_REGEX,       /* each match is a word */
        GGUF_CUT_GPT2,        /* GPT-2's expression, on byte characters */
        GGUF_CUT_DIGIT,       /* each digit is a word */
        GGUF_CUT_DIGITS,      /* each run of digits is a word */
        GGUF_CUT_PUNCTUATION, /* each run of punctuation is a word */
    } cut;
    const char *regex;
};
struct gguf_pre {
    const char *name;
    struct gguf_pre_step steps[GGUF_PRE_STEPS]; /* applied in order; then byte-level encoding */
    bool nfc;                                   /* apply NFC normalisation */
    bool ignore_merges;                         /* a word in the vocabulary is one token */
    bool add_bos;                               /* default if the file does not specify it */
};

/* How a tokenizer makes tokens: tokenizer.ggml.model. */
enum gguf_vocab_kind {
    GGUF_BYTES,   /* merges of characters that are bytes */
    GGUF_PIECES,  /* SentencePiece's BPE: ▁ is a space, <0x0A> a byte */
    GGUF_UNIGRAM, /* the same pieces, and the most probable of all ways to split a text */
    GGUF_WORDS,   /* WordPiece: ## before the parts of a word but the first */
    GGUF_LIKELY,  /* unigrams of the text as it is, from its end on, or bytes (PLaMo) */
    GGUF_LONGEST, /* the longest token of bytes, from the text's beginning on (RWKV) */
};

enum { GGUF_ENDS_MAX = 16 };
/* Lists have n elements, one for each id. */
struct gguf_vocab {
    const struct gguf *g;
    enum gguf_vocab_kind kind;
    struct gguf_str *text;             /* [n] by id; owned. GGUF_LONGEST: bytes, not UTF-8 */
    char *words;                       /* owned: texts of GGUF_WORDS and GGUF_LONGEST */
    const struct gguf_value *scores;   /* of pieces, unigrams; NULL: they have merges */
    const struct gguf_value *types;    /* NULL: all are normal */
    const struct gguf_value *merges;   /* NULL: of pieces with scores, and of words */
    const struct gguf_pre *pre;        /* of GGUF_BYTES, else NULL */
    const struct gguf_value *charsmap; /* of GGUF_UNIGRAM: bytes of the normalisation; or NULL */
    uint32_t n;
    int64_t bos, eos, unk, pad; /* ids; -1: none */
    int64_t sep;                /* between two texts, after eos; -1: only eos */
    bool add_bos, add_eos;
    bool add_space;                       /* of pieces: prepend a space */
    bool lowercase;                       /* of words: the vocabulary has no capital letters */
    uint32_t ends[GGUF_ENDS_MAX], n_ends; /* ids of end tokens */
};

/* ERR_VALIDATION, one line that begins with the path, for an unsupported tokenizer or inconsistent
 * lists. `g` must outlive it. A failed open needs no close. */
int gguf_vocab_open(struct gguf_vocab *v, const struct gguf *g, struct err *e);
void gguf_vocab_close(struct gguf_vocab *v);
/* GGUF_NORMAL if the file has no types, and for numbers that are none of these. id < v->n. */
enum gguf_token gguf_vocab_type(const struct gguf_vocab *v, uint32_t id);

/* The row of a name; NULL: unknown. */
const struct gguf_pre *gguf_pre_find(struct gguf_str name);
/* The row with these split steps, preferably with the same ignore_merges; NULL: none. */
const struct gguf_pre *gguf_pre_like(const struct gguf_pre_step *steps, int n, bool ignore_merges);

/* Appends tokenizer.json and tokenizer_config.json, as Hugging Face's tools would write them.
 * `unlisted`: a special token behind the vocabulary, or NULL. Errors as above. */
struct buf;
int gguf_tokenizer(const struct gguf *g, const char *unlisted, struct buf *out, struct err *e);
int gguf_tokenizer_config(const struct gguf *g, struct buf *out, struct err *e);
#endif
