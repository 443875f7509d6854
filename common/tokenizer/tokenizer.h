/* tokenizer.h - text to ids and back, as Hugging Face `tokenizers` does it from tokenizer.json.
 *
 * Pipeline: added tokens are cut out of the text -> normalizer -> pre-tokenizer -> model (BPE,
 * Unigram, WordPiece) -> post-processor; and back: decoder. A tokenizer is immutable after load, so
 * any number of threads may use one; scratch memory is the caller's (struct tok_scratch, one per
 * thread, reused). Encoding takes time linear in the text, whatever the text is.
 *
 * Text is UTF-8; invalid bytes are taken as U+FFFD. */
#ifndef COMMON_TOKENIZER_TOKENIZER_H
#define COMMON_TOKENIZER_TOKENIZER_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* `dir` holds tokenizer.json (tokenizer_config.json and the like are optional), or is a GGUF file;
 * a path to tokenizer.json itself works too. Caller owns. Errors name the file, the section and
 * what was expected. */
struct tokenizer *tokenizer_load(const char *dir, struct err *e);
void tokenizer_free(struct tokenizer *t); /* NULL is fine */

uint32_t
tokenizer_vocab_size(const struct tokenizer *t); /* largest id + 1, added tokens included */
/* Text of an id as it stands in the vocabulary (byte-level escapes and all); NULL for a hole. */
const char *tokenizer_token(const struct tokenizer *t, uint32_t id);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
int64_t tokenizer_id(const struct tokenizer *t, const char *token); /* -1: not in the vocabulary */
/* What each token adds to a text that is under way, as bytes (a token may be part of a character):
 * those of id are bytes->p[id ? end[id - 1] : 0 .. end[id]). Special tokens and holes add none.
 * `end` [tokenizer_vocab_size()]. -1: out of memory. */
int tokenizer_token_bytes(const struct tokenizer *t, struct buf *bytes, size_t *end);
/* bos_token / eos_token / unk_token / pad_token of tokenizer_config.json (or
 * special_tokens_map.json) as text; NULL where it has none. `name` is the key. */
const char *tokenizer_special(const struct tokenizer *t, const char *name);

struct tok_offset {
    uint32_t start,
        end; /* bytes of the original text, half open; 0,0 for tokens that stand for no text */
};
struct tok_ids { /* zero-initialise; grows as needed; tok_ids_free() */
    uint32_t *id;
    struct tok_offset *at; /* same length as id; NULL unless offsets were asked for */
    uint32_t n, cap;
};
void tok_ids_free(struct tok_ids *ids);

struct tok_scratch; /* opaque working memory; NULL at first, freed by tok_scratch_free() */
void tok_scratch_free(struct tok_scratch *s);

enum { TOK_ADD_SPECIAL = 1, TOK_OFFSETS = 2 };
/* Append nothing, replace: `out` holds the ids of s[0..n) afterwards. `*scratch` may be
 * NULL-initialised and is kept for the next call. ERR_VALIDATION (text can't be encoded),
 * ERR_SYSTEM (memory). */
int tokenizer_encode(const struct tokenizer *t, const char *s, size_t n, unsigned flags,
                     struct tok_scratch **scratch, struct tok_ids *out, struct err *e);

/* All ids at once, appended to `out`; the result of HF's decode() (with its clean-up only if the
 * tokenizer's own decoder asks for it). Unknown ids are skipped. */
void tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                      struct buf *out);

/* Streaming detokenization of one sequence: what is emitted is always whole characters, is never
 * taken back, and concatenates to tokenizer_decode() of all ids (given the same left context),
 * except for a clean-up of the very first token's leading space, which depends on `context`. */
struct detok {
    const struct tokenizer *t;
    bool skip_special;
    uint32_t *ids; /* window of recent ids; owned */
    uint32_t n, cap;
    uint32_t read;           /* ids of the window that are emitted; the rest is held back */
    size_t seen;             /* characters that the emitted ids of the window decode to */
    struct detok_work *work; /* scratch; owned */
};
/* `context`: ids that precede the first streamed one (the prompt, or its last few ids); may be
 * none. */
int detok_init(struct detok *d, const struct tokenizer *t, const uint32_t *context, size_t n,
               bool skip_special);
void detok_free(struct detok *d);
/* Append to `out` the text that `id` completes: possibly nothing while a character is incomplete.
 */
void detok_push(struct detok *d, uint32_t id, struct buf *out);
/* Append what is still held back at the end of the sequence (incomplete bytes as U+FFFD). */
void detok_finish(struct detok *d, struct buf *out);
#endif
