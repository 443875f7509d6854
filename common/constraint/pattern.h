/* pattern.h - regular expressions as people write them, into terms.
 *
 * The common ground of ECMA-262, Python and Rust: alternation, groups (capturing, named or not),
 * greedy and lazy quantifiers (the same language), classes, \d \w \s (ASCII) and their complements,
 * \p{..} of general categories, \x \u escapes, `.` (all but line ends), anchors, \b \B and
 * look-ahead anywhere (pattern_assert.h), and the flags (?i) (simple case mappings), (?s) and (?u)
 * (\d \w \s of Unicode), alone or of a group. What cannot be a regular language (back references)
 * or is not lowered (look-behind, other flags) is refused by name. */
#ifndef COMMON_CONSTRAINT_PATTERN_H
#define COMMON_CONSTRAINT_PATTERN_H
#include "common/constraint/chars.h"
#include "common/err.h"

enum { PATTERN_MAX_BYTES = 32768, PATTERN_MAX_COUNT = 100000 };

enum pattern_reach {
    PATTERN_WHOLE, /* the pattern describes the whole text */
    PATTERN_SEARCH /* it describes some part of the text, as JSON Schema's `pattern` does */
};
/* TERM_NONE with `e` set: ERR_VALIDATION, naming what and at which byte. */
term pattern_term(struct term_pool *p, const char *text, size_t n, enum pattern_reach reach,
                  enum spelling how, struct err *e);
#endif
