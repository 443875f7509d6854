/* vocab.h - the tokens of a GGUF file, and what is said about them: views of the file. */
#ifndef COMMON_GGUF_VOCAB_H
#define COMMON_GGUF_VOCAB_H
#include "common/gguf/gguf.h"

/* tokenizer.ggml.token_type */
enum gguf_token {
    GGUF_NORMAL = 1,
    GGUF_UNKNOWN,
    GGUF_CONTROL,
    GGUF_USER_DEFINED,
    GGUF_UNUSED,
    GGUF_BYTE,
};

/* How a byte-level tokenizer cuts a text into words: a name of tokenizer.ggml.pre. */
enum { GGUF_PRE_STEPS = 7 };
struct gguf_pre_step {
    enum gguf_cut {
        GGUF_CUT_END,
        GGUF_CUT_REGEX,       /* each match is a word */
        GGUF_CUT_GPT2,        /* by the expression of GPT-2, which works on characters of bytes */
        GGUF_CUT_DIGIT,       /* each digit is a word */
        GGUF_CUT_DIGITS,      /* runs of digits are */
        GGUF_CUT_PUNCTUATION, /* runs of punctuation are */
    } cut;
    const char *regex;
};
struct gguf_pre {
    const char *name;
    struct gguf_pre_step steps[GGUF_PRE_STEPS]; /* one after the other; then bytes */
    bool nfc;                                   /* texts are normalised */
    bool ignore_merges;                         /* a word that is a token is that token */
    bool add_bos;                               /* where the file does not say */
};

enum { GGUF_ENDS_MAX = 16 };
struct gguf_vocab {
    const struct gguf *g;
    struct gguf_str *text;           /* [n] by id; owned */
    const struct gguf_value *scores; /* NULL: of a byte-level tokenizer */
    const struct gguf_value *types;  /* NULL: all are normal */
    const struct gguf_value *merges; /* NULL: of a tokenizer with scores */
    const struct gguf_pre *pre;      /* NULL: of a tokenizer with scores */
    uint32_t n;
    int64_t bos, eos, unk, pad; /* ids, -1: none */
    bool add_bos, add_eos;
    bool add_space;                       /* with scores: in front of a text */
    uint32_t ends[GGUF_ENDS_MAX], n_ends; /* ids that end an answer */
};

/* ERR_VALIDATION, one line that begins with the path, for a tokenizer that is not read here, and
 * for lists that do not fit each other. `g` must outlive it. A failed open needs no close. */
int gguf_vocab_open(struct gguf_vocab *v, const struct gguf *g, struct err *e);
void gguf_vocab_close(struct gguf_vocab *v);
enum gguf_token gguf_vocab_type(const struct gguf_vocab *v, uint32_t id);

/* The row for a name; NULL: not known. */
const struct gguf_pre *gguf_pre_find(struct gguf_str name);
/* The row whose words are cut by these steps, first of those that treat merges so; NULL: none. */
const struct gguf_pre *gguf_pre_like(const struct gguf_pre_step *steps, int n, bool ignore_merges);

/* tokenizer.json and tokenizer_config.json as Hugging Face's tools would have written them:
 * appended to `out`. Errors as above. */
struct buf;
int gguf_tokenizer(const struct gguf *g, struct buf *out, struct err *e);
int gguf_tokenizer_config(const struct gguf *g, struct buf *out, struct err *e);
#endif
