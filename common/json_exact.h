/* json_exact.h - JSON whose numbers and strings stay what they were written as.
 *
 * cJSON turns numbers into doubles and ends a string at U+0000. A tree read here keeps the text of
 * each number that a double may change (in `valuestring`), and U+0000 inside a string as the bytes
 * C0 80, which no valid UTF-8 has. All other readers of cJSON trees work on it as before. */
#ifndef COMMON_JSON_EXACT_H
#define COMMON_JSON_EXACT_H
#include "common/buf.h"
#include "common/json.h"

/* As json_parse(), which see; the caller frees with cJSON_Delete(). */
cJSON *json_parse_exact(const char *s, size_t n, struct err *e);

/* A double may lose something of this number, or would be printed in another way. */
bool json_number_changes(const char *text, size_t n);
/* The text of a number, which `room` may hold. */
const char *json_number_text(const cJSON *number, char room[32]);
/* Appends the value as compact JSON, numbers by their texts. */
void json_print_exact(struct buf *b, const cJSON *v);
/* Appends a string's own bytes: U+0000 is one byte 0. */
void json_text_exact(struct buf *b, const char *text);
#endif
