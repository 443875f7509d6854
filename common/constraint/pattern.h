/* pattern.h - compiles regular expressions to terms.
 *
 * The common subset of ECMA-262, Python and Rust: alternation, groups (capturing, named or not),
 * greedy and lazy quantifiers (the same language), classes, \d \w \s (ASCII) and their complements,
 * \p{..} of general categories, \x \u escapes, `.` (all but line ends), anchors, \b \B and
 * look-ahead anywhere (pattern_assert.h), and the flags (?i) (simple case mappings), (?s) and (?u)
 * (Unicode \d \w \s), for the whole pattern or a group. Non-regular features (back references) and
 * unsupported ones (look-behind, other flags) are rejected with an error that names them. */
#ifndef COMMON_CONSTRAINT_PATTERN_H
#define COMMON_CONSTRAINT_PATTERN_H
#include "common/constraint/chars.h"
#include "common/err.h"

enum { PATTERN_MAX_BYTES = 32768, PATTERN_MAX_COUNT = 100000 };

enum pattern_reach {
    PATTERN_WHOLE, /* the pattern matches the whole text */
    PATTERN_SEARCH /* it matches some part of the text, as in JSON Schema's `pattern` */
};
/* TERM_NONE with `e` set: ERR_VALIDATION, naming the fault and its byte offset. */
term pattern_term(struct term_pool *p, const char *text, size_t n, enum pattern_reach reach,
                  enum spelling how, struct err *e);
#endif
