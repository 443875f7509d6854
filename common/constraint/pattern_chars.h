/* pattern_chars.h - named character sets in patterns. */
#ifndef COMMON_CONSTRAINT_PATTERN_CHARS_H
#define COMMON_CONSTRAINT_PATTERN_CHARS_H
#include "common/constraint/chars.h"

/* All functions add to `c` and charge the pool's budget. */
/* The general categories that text[n] names as ECMA-262 does, for the next function: Lu, L,
 * Uppercase_Letter, Letter, and these behind `gc=` or `General_Category=`. 0: none of them. */
uint32_t pattern_category(const char *text, size_t n);
/* Adds the characters of general categories (uni_category_set()). */
void pattern_add_category(struct term_pool *p, struct chars *c, uint32_t set);
/* Adds \d, \w or \s, as ECMA-262 (12.2, 12.3 and 22.2) has them: ASCII digits; ASCII letters,
 * digits and _; white space and line terminators, of which 18 are not ASCII. With `unicode` as UTS
 * #18 has them: Nd; letters, marks, Nd, Pc; White_Space. */
void pattern_add_shorthand(struct term_pool *p, struct chars *c, char letter, bool unicode);
/* Adds the other cases of its characters (simple mappings). */
void pattern_fold(struct term_pool *p, struct chars *c);
#endif
