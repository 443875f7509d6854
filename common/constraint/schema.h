/* schema.h - JSON Schema (draft 2020-12) into a term: the texts of all instances that we let a
 * model write.
 *
 * The language is a subset of what the schema allows, never more: properties come in the order in
 * which they are declared, white space is what the layout allows, and numbers have at most 18
 * digits before the point. With `"x-closed": true` at the root, keywords imply their type and
 * objects have no properties but those listed. Keywords that cannot be kept and references outside
 * the document are refused with their JSON pointer; unknown ones say nothing.
 * docs/decisions/constraints.md lists what is left out. The tree may be one of common/json_exact.h:
 * then numbers are exact.
 */
#ifndef COMMON_CONSTRAINT_SCHEMA_H
#define COMMON_CONSTRAINT_SCHEMA_H
#include "common/constraint/term.h"
#include "common/err.h"
#include <cjson/cJSON.h>

enum json_layout {
    /* Between two tokens at most one blank, or one line break with its indentation: at most four
     * blanks or one tab for each level. Below eight levels up to 64 blanks or tabs. */
    JSON_INDENTED,
    JSON_COMPACT /* none */
};
/* TERM_NONE with `e` set: ERR_VALIDATION, naming the keyword's place, or that no instance exists.
 */
term schema_term(struct term_pool *p, const cJSON *root, enum json_layout layout, struct err *e);
#endif
