/* pattern_chars.h - the sets of characters that patterns name. */
#ifndef COMMON_CONSTRAINT_PATTERN_CHARS_H
#define COMMON_CONSTRAINT_PATTERN_CHARS_H
#include "common/constraint/chars.h"

/* All functions add to `c`, and count their work in the pool's budget. */
/* The characters of general categories (uni_category_set()). */
void pattern_add_category(struct term_pool *p, struct chars *c, uint32_t set);
/* \d, \w or \s, of ASCII or (Unicode, UTS #18) Nd; letters, marks, Nd, Pc; White_Space. */
void pattern_add_shorthand(struct term_pool *p, struct chars *c, char letter, bool unicode);
/* The other cases of its characters (simple mappings). */
void pattern_fold(struct term_pool *p, struct chars *c);
#endif
