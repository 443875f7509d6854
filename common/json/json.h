/* json.h - safe use of cJSON.
 *
 * json_parse() builds cJSON trees with the strict reader of reader.h. cJSON's own parser
 * accepts trailing garbage, control characters, numbers like 01 and invalid UTF-8. The programs
 * access trees only through the json_* functions below, because cJSON's look-up ignores case. Null
 * counts as absent. */
#ifndef COMMON_JSON_JSON_H
#define COMMON_JSON_JSON_H
#include "common/err.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses `n` bytes; the caller frees with cJSON_Delete(). Errors (ERR_VALIDATION) name line and
 * column. */
cJSON *json_parse(const char *s, size_t n, struct err *e);

/* The same for what Python writes: infinity may be Infinity, which is not JSON. NaN is refused. */
cJSON *json_parse_python(const char *s, size_t n, struct err *e);

/* Parses a file of at most `max` bytes as json_parse_python() does. Errors name the file. */
cJSON *json_load(const char *path, size_t max, struct err *e);

/* The value of `key`. NULL: o is not an object, or the value is absent or null. */
const cJSON *json_get(const cJSON *o, const char *key);

/* The first item of a list. NULL: empty, or not a list. */
const cJSON *json_first(const cJSON *list);

/* Is it null, false, or a list or an object without items? */
bool json_is_empty(const cJSON *v);

/* Typed access with a default for absent keys. A value of the wrong type counts as absent; use
 * json_get() to distinguish the two. */
const char *json_str(const cJSON *o, const char *key, const char *def);
double json_num(const cJSON *o, const char *key, double def);
int64_t json_int(const cJSON *o, const char *key, int64_t def);
bool json_bool(const cJSON *o, const char *key, bool def);

/* Sets a member of an object, in the place of an earlier one. Owns `v`, also on failure: it is
 * NULL, or out of memory. */
bool json_put(cJSON *o, const char *key, cJSON *v);

/* Reads a whole file of at most `max` bytes, NUL-terminated (*n excludes the NUL). The caller frees
 * it. */
char *file_read(const char *path, size_t max, size_t *n, struct err *e);
#endif
