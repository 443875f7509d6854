/* text.h - the text inside the pipeline: bytes, their origin, and the spans into which it is split.
 * Steps (step.h) rewrite the bytes or split the spans. */
#ifndef COMMON_TOKENIZER_TEXT_H
#define COMMON_TOKENIZER_TEXT_H
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/vocab.h"

/* `from` maps each byte to the bytes of the original text (whole characters) it comes from. Without
 * it the text is the original, or offsets are not needed. */
struct text {
    const char *p; /* valid UTF-8; own.p, or the caller's bytes */
    uint32_t n;
    struct buf own;
    struct tok_offset *from; /* from_cap entries, valid if `mapped` */
    size_t from_cap;
    bool mapped;
};
void text_free(struct text *t);
/* The original bytes of [start, end). */
struct tok_offset text_origin(const struct text *t, uint32_t start, uint32_t end);

struct span {
    uint32_t start, end;
    uint32_t id; /* an added token, or NO_ID: not tokenized yet */
};
struct spans {
    struct span *v;
    uint32_t n, cap;
};
/* Appends a span; empty ones are dropped. -1: out of memory. */
int spans_add(struct spans *s, uint32_t start, uint32_t end, uint32_t id);

/* Writes a new text from one span of an old one. The origin of new characters follows the
 * reference: `change` 0 replaces the next old character, 1 is an insertion (with the origin of the
 * previous character), -k replaces the next and drops k more. */
struct rewrite {
    const struct text *in;
    struct text *out;
    uint32_t begin, end; /* the span */
    uint32_t at;         /* next old byte */
};
void rewrite_put(struct rewrite *w, uint32_t cp, int change);
void rewrite_copy(struct rewrite *w, uint32_t n); /* copies the next n old bytes */
void rewrite_skip(struct rewrite *w, uint32_t n); /* drops the next n old bytes */
/* Inserts bytes with the origin of the old byte `like`; the old position is unchanged. */
void rewrite_insert(struct rewrite *w, const char *s, size_t n, uint32_t like);
/* Copies the whole old text, replacing each invalid byte by U+FFFD. */
void rewrite_mend(struct rewrite *w);
#endif
