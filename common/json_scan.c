#include "common/json_scan.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, NUMBER_MAX = 400 };

static bool fail(struct scan *s)
{
    s->failed = true;
    s->p = s->end;
    return false;
}

static void white(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
}

enum scan_type scan_next(struct scan *s)
{
    white(s);
    if (s->p == s->end)
        return SCAN_NONE;
    switch (*s->p) {
    case '{':
        return SCAN_OBJECT;
    case '[':
        return SCAN_ARRAY;
    case '"':
        return SCAN_STRING;
    case 't':
    case 'f':
        return SCAN_BOOL;
    case 'n':
        return SCAN_NULL;
    default:
        return *s->p == '-' || (*s->p >= '0' && *s->p <= '9') ? SCAN_NUMBER : SCAN_NONE;
    }
}

void scan_open(struct scan *s)
{
    white(s);
    if (s->p < s->end)
        s->p++;
}

bool scan_more(struct scan *s, char close, bool *first)
{
    bool begin = *first;
    *first = false;
    white(s);
    if (s->p == s->end)
        return fail(s);
    if (*s->p == close) {
        s->p++;
        return false;
    }
    if (begin)
        return true;
    if (*s->p != ',')
        return fail(s);
    s->p++;
    white(s);
    return s->p < s->end && *s->p != close ? true : fail(s);
}

/* Behind the closing quote of the string that begins at s->p. */
static const char *string_end(const struct scan *s)
{
    const char *p = s->p + 1;
    for (; p < s->end && *p != '"'; p++) {
        if ((unsigned char)*p < 0x20)
            return NULL;
        if (*p != '\\')
            continue;
        if (++p == s->end)
            return NULL;
        if (*p == 'u') {
            for (int i = 1; i <= 4; i++)
                if (p + i >= s->end || !strchr("0123456789abcdefABCDEF", p[i]) || !p[i])
                    return NULL;
            p += 4;
        } else if (!*p || !strchr("\"\\/bfnrt", *p)) {
            return NULL;
        }
    }
    return p < s->end ? p + 1 : NULL;
}

bool scan_raw_string(struct scan *s, const char **text, size_t *n)
{
    if (scan_next(s) != SCAN_STRING)
        return fail(s);
    const char *end = string_end(s);
    if (!end)
        return fail(s);
    *text = s->p;
    *n = (size_t)(end - s->p);
    s->p = end;
    return true;
}

bool scan_key(struct scan *s, const char **name, size_t *n)
{
    if (!scan_raw_string(s, name, n))
        return false;
    ++*name;
    *n -= 2;
    white(s);
    if (s->p == s->end || *s->p != ':')
        return fail(s);
    s->p++;
    return true;
}

static uint32_t hex4(const char *p)
{
    char digits[5] = {p[0], p[1], p[2], p[3], 0};
    return (uint32_t)strtoul(digits, NULL, 16);
}

static char *put_utf8(char *o, uint32_t c)
{
    if (c < 0x80) {
        *o++ = (char)c;
    } else if (c < 0x800) {
        *o++ = (char)(0xc0 | c >> 6);
        *o++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *o++ = (char)(0xe0 | c >> 12);
        *o++ = (char)(0x80 | (c >> 6 & 63));
        *o++ = (char)(0x80 | (c & 63));
    } else {
        *o++ = (char)(0xf0 | c >> 18);
        *o++ = (char)(0x80 | (c >> 12 & 63));
        *o++ = (char)(0x80 | (c >> 6 & 63));
        *o++ = (char)(0x80 | (c & 63));
    }
    return o;
}

/* The character of the "uXXXX" at *p, and of the second half of a pair; half a pair is U+FFFD. */
static uint32_t escaped(const char **p, const char *end)
{
    uint32_t c = hex4(*p + 1);
    *p += 5;
    if (c >= 0xd800 && c < 0xdc00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u') {
        uint32_t low = hex4(*p + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            *p += 6;
            return 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
        }
    }
    return c >= 0xd800 && c < 0xe000 ? 0xfffd : c;
}

static const char *undo(const char *p, const char *end, char *o, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char *begin = o;
    while (p < end) {
        if (*p != '\\') {
            *o++ = *p++;
        } else if (p[1] == 'u') {
            p++;
            o = put_utf8(o, escaped(&p, end));
        } else {
            *o++ = to[strchr(from, p[1]) - from];
            p += 2;
        }
    }
    *o = 0;
    *n = (size_t)(o - begin);
    return begin;
}

bool scan_string(struct scan *s, struct arena *a, const char **out, size_t *n)
{
    const char *raw = NULL;
    size_t len = 0;
    if (!scan_raw_string(s, &raw, &len))
        return false;
    char *copy = ARENA_NEW(a, char, len); /* no escape is shorter than what it stands for */
    if (!copy)
        return fail(s);
    *out = undo(raw + 1, raw + len - 1, copy, n);
    return memchr(copy, 0, *n) == NULL;
}

static const char *digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

/* Behind the number at s->p, or NULL; *whole: no fraction, no exponent. */
static const char *number_end(const struct scan *s, bool *whole)
{
    const char *p = s->p + (*s->p == '-'), *begin = p;
    p = digits(p, s->end);
    if (p == begin || (*begin == '0' && p - begin > 1))
        return NULL;
    *whole = true;
    if (p < s->end && *p == '.') {
        const char *fraction = p + 1;
        *whole = false;
        if ((p = digits(fraction, s->end)) == fraction)
            return NULL;
    }
    if (p < s->end && (*p == 'e' || *p == 'E')) {
        const char *power = p + 1;
        *whole = false;
        power += power < s->end && (*power == '+' || *power == '-');
        if ((p = digits(power, s->end)) == power)
            return NULL;
    }
    return p;
}

bool scan_number(struct scan *s, struct scan_number *out)
{
    bool whole = false;
    const char *end = scan_next(s) == SCAN_NUMBER ? number_end(s, &whole) : NULL;
    if (!end || end - s->p > NUMBER_MAX)
        return fail(s);
    size_t n = (size_t)(end - s->p);
    if (whole && n <= 18) { /* what nearly all are: it fits, and is exact */
        bool minus = *s->p == '-';
        int64_t v = 0;
        for (const char *p = s->p + minus; p < end; p++)
            v = v * 10 + (*p - '0');
        *out = (struct scan_number){.whole = true, .i = minus ? -v : v};
        out->v = (double)out->i;
    } else {
        char text[NUMBER_MAX + 1];
        memcpy(text, s->p, n);
        text[n] = 0;
        errno = 0;
        long long i = whole ? strtoll(text, NULL, 10) : 0;
        *out = (struct scan_number){.whole = whole && errno == 0, .i = i, .v = strtod(text, NULL)};
    }
    s->p = end;
    return true;
}

static bool word(struct scan *s, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n) != 0)
        return fail(s);
    s->p += n;
    return true;
}

static bool skip_scalar(struct scan *s, enum scan_type t)
{
    const char *text;
    size_t n;
    struct scan_number number;
    switch (t) {
    case SCAN_STRING:
        return scan_raw_string(s, &text, &n);
    case SCAN_NUMBER:
        return scan_number(s, &number);
    case SCAN_BOOL:
        return word(s, *s->p == 't' ? "true" : "false");
    case SCAN_NULL:
        return word(s, "null");
    default:
        return fail(s);
    }
}

bool scan_skip(struct scan *s)
{
    char close[MAX_DEPTH];
    bool first[MAX_DEPTH];
    int depth = 0;
    do {
        const char *name;
        size_t n;
        if (depth) {
            if (!scan_more(s, close[depth - 1], &first[depth - 1])) {
                depth--;
                continue;
            }
            if (close[depth - 1] == '}' && !scan_key(s, &name, &n))
                return false;
        }
        enum scan_type t = scan_next(s);
        if (t != SCAN_OBJECT && t != SCAN_ARRAY) {
            if (!skip_scalar(s, t))
                return false;
            continue;
        }
        if (depth == MAX_DEPTH)
            return fail(s);
        scan_open(s);
        close[depth] = t == SCAN_OBJECT ? '}' : ']';
        first[depth++] = true;
    } while (depth && !s->failed);
    return !s->failed;
}

bool scan_ended(struct scan *s)
{
    white(s);
    return !s->failed && s->p == s->end;
}
