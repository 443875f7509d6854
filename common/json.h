/* json.h - cJSON, guarded.
 *
 * json_parse() builds cJSON's trees with the strict reader of json_reader.h: cJSON's own accepts
 * trailing garbage, control characters, numbers like 01 and invalid UTF-8. The json_* readers below
 * are the only way the programs look into a tree: cJSON's look keys up without regard to case.
 * Missing and null are the same: absent. */
#ifndef COMMON_JSON_H
#define COMMON_JSON_H
#include "common/err.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parse `n` bytes; the caller frees with cJSON_Delete(). Errors (ERR_VALIDATION) name line and
 * column. */
cJSON *json_parse(const char *s, size_t n, struct err *e);

/* A whole file (at most `max` bytes), parsed. Errors name the file. */
cJSON *json_load(const char *path, size_t max, struct err *e);

const cJSON *json_get(const cJSON *o,
                      const char *key); /* NULL if o is no object, absent, or null */

/* The first item of a list; NULL if it is empty or none. */
const cJSON *json_first(const cJSON *list);

/* Readers with a default for absent keys. A value of the wrong type is absent too: what must be
 * told from absent is checked by its reader with json_get(). */
const char *json_str(const cJSON *o, const char *key, const char *def);
double json_num(const cJSON *o, const char *key, double def);
int64_t json_int(const cJSON *o, const char *key, int64_t def);
bool json_bool(const cJSON *o, const char *key, bool def);

/* Whole file into memory (NUL-terminated, *n excludes it); caller frees. */
char *file_read(const char *path, size_t max, size_t *n, struct err *e);
#endif
