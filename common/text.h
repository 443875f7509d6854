/* text.h - questions about a text that the C library has no function for. */
#ifndef COMMON_TEXT_H
#define COMMON_TEXT_H
#include <stdbool.h>
#include <string.h>

/* A text ends with itself, and every text with "". */
static inline bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && memcmp(s + n - m, end, m) == 0;
}
#endif
