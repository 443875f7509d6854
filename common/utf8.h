/* utf8.h - UTF-8 functions (RFC 3629). */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the valid character at `s` (1..4); 0: invalid. Overlong forms, surrogates and values
 * past U+10FFFF are invalid. */
size_t utf8_valid_len(const char *s, size_t n);

/* Decodes the character at `s`; *len is its length. An invalid byte yields U+FFFD and *len = 1. */
uint32_t utf8_decode(const char *s, size_t n, size_t *len);

/* Returns the bytes written; 0 for surrogates and values past U+10FFFF. */
size_t utf8_encode(uint32_t cp, char out[4]);
bool utf8_valid(const char *s, size_t n);
size_t utf8_count(const char *s, size_t n); /* characters; an invalid byte counts as one */

/* Length of an incomplete but valid character at the end of `s` (0..3), which a stream holds back.
 * Invalid bytes are not held back. */
size_t utf8_incomplete_tail(const char *s, size_t n);
#endif
