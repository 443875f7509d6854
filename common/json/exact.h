/* exact.h - parses and prints JSON without changing numbers or strings.
 *
 * cJSON converts numbers to doubles and ends a string at U+0000. A tree parsed here keeps the text
 * of numbers that a double would change (in `valuestring`). It stores U+0000 as the bytes C0 80,
 * which never occur in valid UTF-8. Other functions on cJSON trees work as before. */
#ifndef COMMON_JSON_EXACT_H
#define COMMON_JSON_EXACT_H
#include "common/buf.h"
#include "common/json/json.h"

/* As json_parse(); the caller frees with cJSON_Delete(). */
cJSON *json_parse_exact(const char *s, size_t n, struct err *e);

/* True if a double cannot represent this number, or would be printed differently. */
bool json_number_changes(const char *text, size_t n);
/* The text of a number; `room` may hold it. */
const char *json_number_text(const cJSON *number, char room[32]);
/* Appends the value as compact JSON, with numbers as written. */
void json_print_exact(struct buf *b, const cJSON *v);
/* Appends a string's bytes; U+0000 becomes one byte 0. */
void json_text_exact(struct buf *b, const char *text);
#endif
