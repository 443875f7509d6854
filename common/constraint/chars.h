/* chars.h - sets of characters, and their encoding as bytes. */
#ifndef COMMON_CONSTRAINT_CHARS_H
#define COMMON_CONSTRAINT_CHARS_H
#include "common/constraint/term.h"

enum { CHARS_MAX_RANGES = 1024, CHAR_LAST = 0x10ffff };

/* Ranges of code points; ascending and disjoint after chars_tidy(). A set that would need more than
 * CHARS_MAX_RANGES ranges sets `overflow`. */
struct chars {
    struct {
        uint32_t first, last;
    } at[CHARS_MAX_RANGES];
    uint32_t n;
    bool overflow;
};
static inline void chars_clear(struct chars *c)
{
    c->n = 0;
    c->overflow = false;
}
/* Adds [first, last]; ranges may overlap until chars_tidy(). */
void chars_add(struct chars *c, uint32_t first, uint32_t last);
void chars_tidy(struct chars *c);   /* sorts ranges, and joins those that touch */
void chars_invert(struct chars *c); /* calls chars_tidy() first */

/* How characters are encoded. */
enum spelling {
    SPELL_PLAIN, /* UTF-8 */
    /* as in a JSON string, in one way per character: escaped only if required, by the two-character
     * escape if there is one */
    SPELL_JSON
};
/* One character of the set. */
term chars_term(struct term_pool *p, struct chars *c, enum spelling how);
term chars_any_term(struct term_pool *p, enum spelling how); /* any character */
/* The characters of a text, as inside a JSON string. */
term chars_json_text(struct term_pool *p, const char *text, size_t n);
#endif
