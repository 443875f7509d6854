/* chars.h - sets of characters, and the bytes they are written with. */
#ifndef COMMON_CONSTRAINT_CHARS_H
#define COMMON_CONSTRAINT_CHARS_H
#include "common/constraint/term.h"

enum { CHARS_MAX_RANGES = 1024, CHAR_LAST = 0x10ffff };

/* Ranges of code points; ascending and disjoint after chars_tidy(). A set that needs more than
 * CHARS_MAX_RANGES ranges has `overflow`. */
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
void chars_add(struct chars *c, uint32_t first, uint32_t last);
void chars_tidy(struct chars *c);
void chars_invert(struct chars *c); /* tidies first */

/* How a character becomes bytes. */
enum spelling {
    SPELL_PLAIN, /* UTF-8 */
    SPELL_JSON   /* inside a JSON string, each character in one way: escaped only where it must be,
                    with the two-character escape where there is one */
};
/* One character of the set. */
term chars_term(struct term_pool *p, struct chars *c, enum spelling how);
term chars_any_term(struct term_pool *p, enum spelling how); /* any character */
/* The text's characters one after another, as a JSON string's inside. */
term chars_json_text(struct term_pool *p, const char *text, size_t n);
#endif
