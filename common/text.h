/* text.h - string functions missing in the C library. */
#ifndef COMMON_TEXT_H
#define COMMON_TEXT_H
#include <stdbool.h>
#include <string.h>

/* True also for equal strings, and for an empty `end`. */
static inline bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && memcmp(s + n - m, end, m) == 0;
}
#endif
