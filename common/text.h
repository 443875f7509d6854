/* text.h - string functions missing in the C library. */
#ifndef COMMON_TEXT_H
#define COMMON_TEXT_H
#include <stdbool.h>
#include <string.h>

/* Both are true also for equal strings, and for an empty part. */
static inline bool starts_with(const char *s, const char *start)
{
    return strncmp(s, start, strlen(start)) == 0;
}
static inline bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && memcmp(s + n - m, end, m) == 0;
}
#endif
