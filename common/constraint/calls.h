/* calls.h - a text that may hold calls of functions between markers. */
#ifndef COMMON_CONSTRAINT_CALLS_H
#define COMMON_CONSTRAINT_CALLS_H
#include "common/constraint/schema.h"

/* `spec`: {"open": marker, "close": marker, "schema": of a call}. Any text; but behind each opening
 * marker there is an instance of the schema, with white space around it, and the closing marker.
 * ERR_VALIDATION: what the schema's compiler says; a marker is missing. */
term calls_term(struct term_pool *p, const cJSON *spec, enum json_layout layout, struct err *e);
#endif
