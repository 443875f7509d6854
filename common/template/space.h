/* space.h - Python's white space at either end of UTF-8 text. */
#ifndef COMMON_TEMPLATE_SPACE_H
#define COMMON_TEMPLATE_SPACE_H
#include "common/utf8.h"

/* As str.isspace() of one character. */
static inline bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Length in bytes of the character that ends before p[n], n > 0. */
static inline size_t utf8_back(const char *p, size_t n)
{
    size_t k = 1;
    while (k < n && k < 4 && ((unsigned char)p[n - k] & 0xc0) == 0x80)
        k++;
    return k;
}

/* Length of leading white space, and length without trailing white space, in bytes of p[0 .. n),
 * which is valid UTF-8. */
static inline size_t space_prefix(const char *p, size_t n)
{
    size_t i = 0, len;
    while (i < n && is_space(utf8_decode(p + i, n - i, &len)))
        i += len;
    return i;
}

static inline size_t trimmed_len(const char *p, size_t n)
{
    size_t len;
    while (n) {
        size_t k = utf8_back(p, n);
        if (!is_space(utf8_decode(p + n - k, k, &len)))
            break;
        n -= k;
    }
    return n;
}
#endif
