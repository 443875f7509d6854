/* pattern_chars.h - named character sets in patterns. */
#ifndef COMMON_CONSTRAINT_PATTERN_CHARS_H
#define COMMON_CONSTRAINT_PATTERN_CHARS_H
#include "common/constraint/chars.h"

/* All functions add to `c` and charge the pool's budget. */
/* Adds the characters of general categories (uni_category_set()). */
void pattern_add_category(struct term_pool *p, struct chars *c, uint32_t set);
/* Adds \d, \w or \s: ASCII, or Unicode (UTS #18): Nd; letters, marks, Nd, Pc; White_Space. */
void pattern_add_shorthand(struct term_pool *p, struct chars *c, char letter, bool unicode);
/* Adds the other cases of its characters (simple mappings). */
void pattern_fold(struct term_pool *p, struct chars *c);
#endif
