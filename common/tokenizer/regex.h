/* regex.h - the regular expressions of tokenizer.json (Oniguruma's Ruby dialect) on PCRE2.
 *
 * The pattern is translated: \s is exactly White_Space, \p{..} includes characters newer than
 * PCRE2's tables, a script's name is the property Script, \b, \w and [:alpha:] include marks as in
 * Oniguruma, nested classes are flattened, intersections become look-ahead, \h is a hex digit,
 * {n,m}+ is not possessive. What PCRE2 cannot express (absent operators, conditions) is an error at
 * load. */
#ifndef COMMON_TOKENIZER_REGEX_H
#define COMMON_TOKENIZER_REGEX_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct regex; /* immutable after compilation; any number of threads */
struct regex *regex_compile(const char *pattern, size_t n, struct err *e);
void regex_free(struct regex *r);
/* The translation alone, for tests. */
int regex_translate(const char *pattern, size_t n, struct buf *out, struct err *e);

/* Is it the name of a script, which PCRE2 has as the property Script? Before its version 10.40 none
 * is: there \p{Han} itself is that property. */
bool regex_is_script(const char *name, size_t n);

/* Iterates over the matches in a text. */
struct regex_iter {
    const struct regex *r;
    const char *s; /* valid UTF-8 */
    size_t n, at, last_end;
    void *match; /* from regex_match_new(): one per thread */
};
void *regex_match_new(void);
void regex_match_free(void *match);
struct regex_iter regex_iter(const struct regex *r, const char *s, size_t n, void *match);
/* 1: the next match, [*start, *end); 0: no more; -1: the match limits were exceeded. */
int regex_next(struct regex_iter *it, size_t *start, size_t *end);
#endif
