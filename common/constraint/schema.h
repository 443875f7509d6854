/* schema.h - compiles JSON Schema (draft 2020-12) to a term for the texts of its instances.
 *
 * The language is a subset of the instances, never more. Properties come in declaration order,
 * white space is limited by the layout, and numbers have at most 18 digits before the point. With
 * `"x-closed": true` at the root, keywords imply their type, and objects allow only listed
 * properties. A string with `"x-grammar": {"syntax": "lark" or "regex", "definition"}` is a text of
 * that grammar, and its other keywords do not count. Unsupported keywords and references to other
 * documents are rejected with their JSON pointer; unknown keywords are ignored.
 * docs/decisions/constraints.md lists what is unsupported. A tree from common/json/exact.h gives
 * exact numbers. */
#ifndef COMMON_CONSTRAINT_SCHEMA_H
#define COMMON_CONSTRAINT_SCHEMA_H
#include "common/constraint/term.h"
#include "common/err.h"
#include <cjson/cJSON.h>

enum json_layout {
    /* Between two tokens at most one blank, or one line break with indentation: at most four blanks
     * or one tab per level. Below eight levels up to 64 blanks or tabs. */
    JSON_INDENTED,
    JSON_COMPACT /* no white space */
};
/* TERM_NONE with `e` set: ERR_VALIDATION, naming the keyword's position, or that there is no
 * instance. */
term schema_term(struct term_pool *p, const cJSON *root, enum json_layout layout, struct err *e);
#endif
