#include "common/utf8.h"
#include <string.h>

/* Length of a well-formed prefix at `s`, and the full length of the character. */
static size_t scan(const unsigned char *s, size_t n, size_t *need)
{
    unsigned char c = s[0], lo = 0x80, hi = 0xBF;
    if (c < 0x80)
        return *need = 1;
    if (c < 0xC2 || c > 0xF4)
        return *need = 0;
    *need = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (c == 0xE0) /* overlong */
        lo = 0xA0;
    else if (c == 0xED) /* surrogates */
        hi = 0x9F;
    else if (c == 0xF0) /* overlong */
        lo = 0x90;
    else if (c == 0xF4) /* past U+10FFFF */
        hi = 0x8F;
    for (size_t i = 1; i < *need; i++, lo = 0x80, hi = 0xBF) {
        if (i == n)
            return i;
        if (s[i] < lo || s[i] > hi)
            return *need = 0;
    }
    return *need;
}

size_t utf8_valid_len(const char *s, size_t n)
{
    size_t need;
    if (!n)
        return 0;
    return scan((const unsigned char *)s, n, &need) == need ? need : 0;
}

uint32_t utf8_decode(const char *s, size_t n, size_t *len)
{
    const unsigned char *u = (const unsigned char *)s;
    switch (*len = utf8_valid_len(s, n)) {
    case 1:
        return u[0];
    case 2:
        return (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
    case 3:
        return (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
    case 4:
        return (u[0] & 0x07u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
    default:
        *len = 1;
        return 0xFFFD;
    }
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80)
        return out[0] = (char)cp, 1;
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        return 0;
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool utf8_valid(const char *s, size_t n)
{
    uint64_t x;
    for (size_t i = 0, len; i < n; i += len) {
        while (n - i >= sizeof(x) && (memcpy(&x, s + i, sizeof(x)), !(x & 0x8080808080808080)))
            i += sizeof(x); /* ASCII */
        if (i == n)
            break;
        if (!(len = (unsigned char)s[i] < 0x80 ? 1 : utf8_valid_len(s + i, n - i)))
            return false;
    }
    return true;
}

size_t utf8_count(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; count++) {
        size_t len = utf8_valid_len(s + i, n - i);
        i += len ? len : 1;
    }
    return count;
}

size_t utf8_incomplete_tail(const char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char *u = (const unsigned char *)s + n - back;
        size_t need;
        if ((*u & 0xC0) == 0x80)
            continue; /* continuation byte: the lead byte is before it */
        return scan(u, back, &need) == back && need > back ? back : 0;
    }
    return 0;
}
