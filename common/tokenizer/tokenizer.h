/* tokenizer.h - tokenization and detokenization, compatible with Hugging Face `tokenizers`
 * (tokenizer.json).
 *
 * Encoding pipeline: added tokens are matched -> normalizer -> pre-tokenizer -> model (BPE,
 * Unigram, WordPiece) -> post-processor. Decoding: decoder. A tokenizer is immutable after load, so
 * any number of threads may use it; scratch memory is the caller's (struct tok_scratch, one per
 * thread, reused). Encoding takes linear time for any text.
 *
 * Text is UTF-8; invalid bytes are read as U+FFFD. */
#ifndef COMMON_TOKENIZER_TOKENIZER_H
#define COMMON_TOKENIZER_TOKENIZER_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* Loads from `dir` with tokenizer.json (tokenizer_config.json and others are optional), a GGUF
 * file, or the path of a tokenizer.json. Caller owns the result. Errors name the file, the section
 * and the expected value. */
struct tokenizer *tokenizer_load(const char *dir, struct err *e);
/* The same for who decodes and seldom encodes: vocabulary and decoder. The rest is loaded when
 * tokenizer_encode() or tokenizer_special() first needs it, by then with tokenizer_load()'s
 * errors. */
struct tokenizer *tokenizer_load_lazily(const char *dir, struct err *e);
void tokenizer_free(struct tokenizer *t); /* NULL is allowed */

/* largest id + 1, including added tokens */
uint32_t tokenizer_vocab_size(const struct tokenizer *t);
/* The text of an id as in the vocabulary (with byte-level escapes); NULL: unused id. */
const char *tokenizer_token(const struct tokenizer *t, uint32_t id);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
int64_t tokenizer_id(const struct tokenizer *t, const char *token); /* -1: not in the vocabulary */
/* The bytes that each token adds to a text (possibly a part of a character): those of id are
 * bytes->p[id ? end[id - 1] : 0 .. end[id]). Special tokens and unused ids add none. `end` has
 * tokenizer_vocab_size() entries. -1: out of memory. */
int tokenizer_token_bytes(const struct tokenizer *t, struct buf *bytes, size_t *end);
/* The text of bos_token / eos_token / unk_token / pad_token in tokenizer_config.json (or
 * special_tokens_map.json); NULL: none. `name` is the key. */
const char *tokenizer_special(const struct tokenizer *t, const char *name);

struct tok_offset {
    uint32_t start,
        /* bytes of the original text, half open; 0,0 for tokens without text */
        end;
};
struct tok_ids { /* zero-initialise; grows as needed; free with tok_ids_free() */
    uint32_t *id;
    struct tok_offset *at; /* same length as id; NULL unless offsets were requested */
    /* with `at`: the number of the pre-tokenizer's piece that a token is of, ascending from 0 */
    uint32_t *word;
    uint32_t n, cap;
};
void tok_ids_free(struct tok_ids *ids);

struct tok_text { /* a piece of text; not owned */
    const char *p;
    size_t n;
};

struct tok_scratch; /* opaque working memory; initially NULL, freed by tok_scratch_free() */
void tok_scratch_free(struct tok_scratch *s);

/* A guard is a noncharacter (U+FDD0). With TOK_GUARDED no added token is matched across a guard,
 * and guards are then dropped: `<\uFDD0s>` is the text `<s>`, not the token. */
#define TOK_GUARD "\xEF\xB7\x90"
enum { TOK_ADD_SPECIAL = 1, TOK_OFFSETS = 2, TOK_GUARDED = 4 };
/* Tokenizes s[0..n) into `out`, replacing its content. `*scratch` may be NULL and is kept for the
 * next call. ERR_VALIDATION (text cannot be encoded), ERR_SYSTEM (out of memory). */
int tokenizer_encode(const struct tokenizer *t, const char *s, size_t n, unsigned flags,
                     struct tok_scratch **scratch, struct tok_ids *out, struct err *e);

/* Appends the text of all ids to `out`, as HF's decode() does (its clean-up only if the tokenizer's
 * own decoder has it). Unknown ids are skipped. */
void tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                      struct buf *out);

/* The same of the texts of tokens, as in the vocabulary (tokenizer_token()); other texts may be
 * among them. HF's convert_tokens_to_string(). */
void tokenizer_join(const struct tokenizer *t, const struct tok_text *tokens, size_t n,
                    struct buf *out);
/* True if tokens that continue a word begin with a mark of their own ("##" of WordPiece). */
bool tokenizer_marks_inner(const struct tokenizer *t);

/* Streaming detokenization of one sequence. The emitted text is always whole characters and never
 * revised. Its concatenation equals tokenizer_decode() of all ids in the same context, except for
 * the clean-up of the first token's leading space, which depends on `context`. */
struct detok {
    const struct tokenizer *t;
    bool skip_special;
    uint32_t *ids; /* window of recent ids; owned */
    uint32_t n, cap;
    uint32_t read;           /* ids of the window already emitted; the rest is held back */
    size_t seen;             /* characters of the emitted ids in the window */
    struct detok_work *work; /* scratch; owned */
};
/* `context`: ids before the first streamed one (the prompt, or its last few ids); may be empty. -1:
 * out of memory. */
int detok_init(struct detok *d, const struct tokenizer *t, const uint32_t *context, size_t n,
               bool skip_special);
void detok_free(struct detok *d);
/* Appends the text that `id` completes: nothing while a character is incomplete. If `out` is `oom`
 * afterwards, the text is lost and the stream cannot be continued. */
void detok_push(struct detok *d, uint32_t id, struct buf *out);
/* Appends the text held back at the end of the sequence (incomplete bytes as U+FFFD). */
void detok_finish(struct detok *d, struct buf *out);
#endif
