/* text.h - the text on its way from the caller to the model: bytes, where each came from, and the
 * spans it is cut into. Steps (step.h) rewrite the bytes or cut the spans. */
#ifndef COMMON_TOKENIZER_TEXT_H
#define COMMON_TOKENIZER_TEXT_H
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/vocab.h"

/* `from` says for each byte which bytes of the original text (always whole characters) it stands
 * for. Without it the text is the original, or offsets are not wanted. */
struct text {
    const char *p; /* valid UTF-8; own.p, or the caller's bytes */
    uint32_t n;
    struct buf own;
    struct tok_offset *from; /* from_cap entries, valid if `mapped` */
    size_t from_cap;
    bool mapped;
};
void text_free(struct text *t);
/* Bytes of the original behind [start, end). */
struct tok_offset text_origin(const struct text *t, uint32_t start, uint32_t end);

struct span {
    uint32_t start, end;
    uint32_t id; /* an added token, or NO_ID: still to be worked on */
};
struct spans {
    struct span *v;
    uint32_t n, cap;
};
/* Empty spans are dropped. -1: memory. */
int spans_add(struct spans *s, uint32_t start, uint32_t end, uint32_t id);

/* Writing a new text from one span of an old one. Which original bytes a new character stands for
 * follows the rule of the reference: `change` 0 replaces the next old character, 1 is inserted (and
 * shares the place of the character before it), -k replaces the next and swallows k more. */
struct rewrite {
    const struct text *in;
    struct text *out;
    uint32_t begin, end; /* the span */
    uint32_t at;         /* next old byte */
};
void rewrite_put(struct rewrite *w, uint32_t cp, int change);
void rewrite_copy(struct rewrite *w, uint32_t n); /* the next n old bytes as they are */
void rewrite_skip(struct rewrite *w, uint32_t n); /* drop the next n old bytes */
/* Add bytes that all share the place of the old byte `like`; the old position stays. */
void rewrite_insert(struct rewrite *w, const char *s, size_t n, uint32_t like);
/* The whole old text, which may be ill-formed: each bad byte becomes U+FFFD. */
void rewrite_mend(struct rewrite *w);
#endif
