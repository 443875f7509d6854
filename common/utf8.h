/* utf8.h - the few UTF-8 facts that several components need (RFC 3629). */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the valid character at `s` (1..4), 0 if the bytes there are not one. Overlong forms,
 * surrogates and values past U+10FFFF are invalid. */
size_t utf8_valid_len(const char *s, size_t n);

/* Decode the character at `s`; *len gets its bytes. An invalid byte yields U+FFFD and *len = 1. */
uint32_t utf8_decode(const char *s, size_t n, size_t *len);

size_t utf8_encode(uint32_t cp,
                   char out[4]); /* bytes written; 0 for surrogates and past U+10FFFF */
bool utf8_valid(const char *s, size_t n);
size_t utf8_count(const char *s, size_t n); /* characters; an invalid byte counts as one */

/* Bytes at the end of `s` that begin a character which may still be completed (0..3): a stream
 * holds these back. Bytes that can never become a character are not held back. */
size_t utf8_incomplete_tail(const char *s, size_t n);
#endif
