/* calls.h - constraints for texts that contain function calls between markers. */
#ifndef COMMON_CONSTRAINT_CALLS_H
#define COMMON_CONSTRAINT_CALLS_H
#include "common/constraint/schema.h"

/* `spec`: {"open": marker, "close": marker, "schema": of a call}. Any text; but each opening marker
 * must be followed by an instance of the schema, optional white space around it, and the closing
 * marker. ERR_VALIDATION: errors of the schema compiler, or a missing marker. */
term calls_term(struct term_pool *p, const cJSON *spec, enum json_layout layout, struct err *e);

/* `answer`, or calls only, written in one of the `ways`, a list of:
 *   {"open", "close", "schema", "around": [marker, marker]}  one or more calls, each between its
 *                                         markers; `around` and its markers are optional
 *   {"open"}                              the marker, then any text
 *   {"schema"}                            one instance
 * ERR_VALIDATION: as calls_term(). */
term calls_or(struct term_pool *p, term answer, const cJSON *ways, enum json_layout layout,
              struct err *e);
#endif
