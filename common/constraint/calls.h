/* calls.h - texts that hold calls of functions between markers. */
#ifndef COMMON_CONSTRAINT_CALLS_H
#define COMMON_CONSTRAINT_CALLS_H
#include "common/constraint/schema.h"

/* `spec`: {"open": marker, "close": marker, "schema": of a call}. Any text; but behind each opening
 * marker there is an instance of the schema, with white space around it, and the closing marker.
 * ERR_VALIDATION: what the schema's compiler says; a marker is missing. */
term calls_term(struct term_pool *p, const cJSON *spec, enum json_layout layout, struct err *e);

/* `answer`, or calls and nothing before them. They are written in one of the `ways`, a list:
 *   {"open", "close", "schema", "around": [marker, marker]}  one call or more, each between its
 *                                        markers; `around` may be missing, and so may its markers
 *   {"open"}                             the marker, and any text behind it
 *   {"schema"}                           one instance
 * ERR_VALIDATION: as calls_term(). */
term calls_or(struct term_pool *p, term answer, const cJSON *ways, enum json_layout layout,
              struct err *e);
#endif
