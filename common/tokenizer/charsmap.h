/* charsmap.h - sentencepiece's "precompiled_charsmap": a double-array trie (darts-clone) from
 * character sequences to replacements. Untrusted input: every index is checked. */
#ifndef COMMON_TOKENIZER_CHARSMAP_H
#define COMMON_TOKENIZER_CHARSMAP_H
#include "common/err.h"
#include <stddef.h>
#include <stdint.h>

struct charsmap {
    uint32_t *unit;
    size_t units;
    char *text; /* replacements, NUL-terminated; valid UTF-8 */
    size_t text_n;
};
struct charsmap *charsmap_load(const char *base64, struct err *e);
void charsmap_free(struct charsmap *m);
/* The replacement of the shortest known prefix of s[0..n), whose length is *len; NULL: none. */
const char *charsmap_find(const struct charsmap *m, const char *s, size_t n, size_t *len);
#endif
