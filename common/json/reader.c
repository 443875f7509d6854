#include "common/json/reader.h"
#include "common/hex.h"
#include "common/utf8.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MAX = 400 };

const char jr_control[] = "a string without control characters";
const char jr_bad_number[] = "a number";
const char jr_no_memory[] = "more memory";
const char jr_surrogate[] = "whole surrogate pairs";

bool jr_fail(struct json_reader *j, const char *expected)
{
    if (!j->fault)
        j->fault = expected;
    return false;
}

static bool fail_at(struct json_reader *j, const char *p, const char *expected)
{
    if (!j->fault)
        j->p = p;
    return jr_fail(j, expected);
}

static void white(struct json_reader *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\r' || *j->p == '\t'))
        j->p++;
}

enum jr_kind jr_next(struct json_reader *j)
{
    if (j->fault)
        return JR_NONE;
    white(j);
    if (j->p == j->end)
        return JR_NONE;
    switch (*j->p) {
    case '{':
        return JR_OBJECT;
    case '[':
        return JR_ARRAY;
    case '"':
        return JR_STRING;
    case 't':
    case 'f':
        return JR_BOOL;
    case 'n':
        return JR_NULL;
    default:
        return *j->p == '-' || (*j->p >= '0' && *j->p <= '9') ? JR_NUMBER : JR_NONE;
    }
}

bool jr_open(struct json_reader *j, char c)
{
    assert(c == '{' || c == '[');
    if (jr_next(j) != (c == '{' ? JR_OBJECT : JR_ARRAY))
        return jr_fail(j, c == '{' ? "an object" : "an array");
    j->p++;
    return true;
}

bool jr_more(struct json_reader *j, char close, bool *first)
{
    const bool begin = *first;
    if (j->fault)
        return false;
    *first = false;
    white(j);
    if (j->p < j->end && *j->p == close) {
        j->p++;
        return false;
    }
    if (!begin) {
        if (j->p < j->end && *j->p != ',')
            return jr_fail(j, "',' or the end of the list");
        j->p += j->p < j->end;
        white(j);
    }
    if (j->p == j->end)
        return jr_fail(j, "a closing bracket (the text ends here)");
    return *j->p != close ? true : jr_fail(j, "a value");
}

/* ---------------------------------------------------------------- strings */

/* The position after the escape at *p. */
static const char *escape_end(struct json_reader *j, const char *p)
{
    if (p + 1 == j->end)
        return fail_at(j, j->end, "the end of a string"), NULL;
    if (!p[1] || !strchr("\"\\/bfnrtu", p[1]))
        return fail_at(j, p, "a known escape"), NULL;
    if (p[1] != 'u')
        return p + 2;
    for (int i = 2; i < 6; i++)
        if (p + i >= j->end)
            return fail_at(j, j->end, "the end of a string"), NULL;
        else if (hex_digit(p[i]) < 0)
            return fail_at(j, p, "four hexadecimal digits"), NULL;
    return p + 6;
}

bool jr_raw_string(struct json_reader *j, const char **text, size_t *n)
{
    if (jr_next(j) != JR_STRING)
        return jr_fail(j, "a string");
    const char *p = j->p + 1;
    while (p < j->end && *p != '"') {
        if ((unsigned char)*p < ' ')
            return fail_at(j, p, jr_control);
        if (*p != '\\')
            p++;
        else if (!(p = escape_end(j, p)))
            return false;
    }
    if (p == j->end)
        return fail_at(j, p, "the end of a string");
    *text = j->p;
    *n = (size_t)(++p - j->p);
    j->p = p;
    return true;
}

static bool colon(struct json_reader *j)
{
    white(j);
    if (j->p == j->end || *j->p != ':')
        return jr_fail(j, "':'");
    j->p++;
    return true;
}

bool jr_name(struct json_reader *j, const char **name, size_t *n)
{
    if (!jr_raw_string(j, name, n))
        return false;
    ++*name;
    *n -= 2;
    return colon(j);
}

static uint32_t hex4(const char *p)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v = v << 4 | (uint32_t)(p[i] <= '9' ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
    return v;
}

/* Decodes "\uXXXX" at *p, and the second half of a pair; UINT32_MAX: a lone surrogate. */
static uint32_t escaped(const char **p, const char *end)
{
    const uint32_t c = hex4(*p + 2);
    *p += 6;
    if (c < 0xd800 || c >= 0xe000)
        return c;
    if (c < 0xdc00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u') {
        const uint32_t low = hex4(*p + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            *p += 6;
            return 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
        }
    }
    return UINT32_MAX;
}

size_t jr_unescape(const char *raw, size_t n, char *out, bool lone, bool nul)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *end = raw + n;
    char *o = out;
    for (const char *p = raw; p < end;) {
        const char *run = memchr(p, '\\', (size_t)(end - p));
        const size_t plain = (size_t)((run ? run : end) - p);
        memmove(o, p, plain);
        o += plain, p += plain;
        if (p == end)
            break;
        if (p[1] != 'u') {
            *o++ = to[strchr(from, p[1]) - from];
            p += 2;
            continue;
        }
        uint32_t c = escaped(&p, end);
        if (c == UINT32_MAX && !lone)
            return SIZE_MAX;
        if (c == 0 && nul) {
            *o++ = '\xc0';
            *o++ = '\x80';
        } else {
            char text[4]; /* no escape is shorter than its UTF-8 encoding */
            const size_t len = utf8_encode(c == UINT32_MAX ? 0xfffd : c, text);
            memcpy(o, text, len);
            o += len;
        }
    }
    return (size_t)(o - out);
}

bool jr_string(struct json_reader *j, struct buf *out)
{
    const char *raw;
    size_t n;
    buf_reset(out);
    if (!jr_raw_string(j, &raw, &n))
        return false;
    buf_add(out, raw + 1, n - 2);
    if (out->oom)
        return jr_fail(j, jr_no_memory);
    if (!out->len || !memchr(out->p, '\\', out->len))
        return true;
    size_t len = jr_unescape(out->p, out->len, out->p, false, false);
    if (len == SIZE_MAX)
        return fail_at(j, raw, jr_surrogate);
    out->len = len;
    out->p[len] = 0;
    return true;
}

bool jr_key(struct json_reader *j, struct buf *out) { return jr_string(j, out) && colon(j); }

bool jr_arena_string(struct json_reader *j, struct arena *a, const char **out, size_t *n)
{
    const char *raw;
    size_t len;
    if (!jr_raw_string(j, &raw, &len))
        return false;
    char *copy = ARENA_NEW(a, char, len);
    if (!copy)
        return jr_fail(j, jr_no_memory);
    *n = jr_unescape(raw + 1, len - 2, copy, true, false);
    copy[*n] = 0;
    *out = copy;
    return memchr(copy, 0, *n) == NULL;
}

/* ---------------------------------------------------------------- numbers and words */

static const char *digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

/* The position after the number at j->p, or NULL; *whole: no fraction, no exponent. */
static const char *number_end(const struct json_reader *j, bool *whole)
{
    const char *p = j->p + (*j->p == '-'), *begin = p;
    p = digits(p, j->end);
    if (p == begin || (*begin == '0' && p - begin > 1))
        return NULL;
    *whole = true;
    if (p < j->end && *p == '.') {
        const char *fraction = p + 1;
        *whole = false;
        if ((p = digits(fraction, j->end)) == fraction)
            return NULL;
    }
    if (p < j->end && (*p == 'e' || *p == 'E')) {
        const char *power = p + 1;
        *whole = false;
        power += power < j->end && (*power == '+' || *power == '-');
        if ((p = digits(power, j->end)) == power)
            return NULL;
    }
    return p;
}

bool jr_number(struct json_reader *j, struct jr_number *out)
{
    bool whole = false;
    const char *end = jr_next(j) == JR_NUMBER ? number_end(j, &whole) : NULL;
    if (!end || end - j->p > NUMBER_MAX)
        return jr_fail(j, jr_bad_number);
    const size_t n = (size_t)(end - j->p);
    *out = (struct jr_number){.text = j->p, .n = n};
    if (whole && n <= 18) { /* fast path for most numbers: fits and is exact */
        const bool minus = *j->p == '-';
        int64_t v = 0;
        for (const char *p = j->p + minus; p < end; p++)
            v = v * 10 + (*p - '0');
        out->whole = true;
        out->i = minus ? -v : v;
        out->v = minus && !v ? -0.0 : (double)out->i;
    } else {
        char text[NUMBER_MAX + 1];
        memcpy(text, j->p, n);
        text[n] = 0;
        errno = 0;
        out->i = whole ? strtoll(text, NULL, 10) : 0;
        out->whole = whole && errno == 0;
        out->v = strtod(text, NULL);
    }
    j->p = end;
    return true;
}

static bool word(struct json_reader *j, const char *w)
{
    const size_t n = strlen(w), left = (size_t)(j->end - j->p);
    if (left < n && !memcmp(j->p, w, left))
        return fail_at(j, j->end, "a value (the text ends here)");
    if (left < n || memcmp(j->p, w, n) != 0)
        return jr_fail(j, "a value");
    j->p += n;
    return true;
}

bool jr_bool(struct json_reader *j, bool *out)
{
    if (jr_next(j) != JR_BOOL)
        return jr_fail(j, "true or false");
    *out = *j->p == 't';
    return word(j, *out ? "true" : "false");
}

/* ---------------------------------------------------------------- any value */

static bool skip_scalar(struct json_reader *j, enum jr_kind kind)
{
    const char *text;
    size_t n;
    bool whole, is;
    switch (kind) {
    case JR_STRING:
        return jr_raw_string(j, &text, &n);
    case JR_NUMBER:
        if (!(text = number_end(j, &whole)))
            return jr_fail(j, jr_bad_number);
        j->p = text;
        return true;
    case JR_BOOL:
        return jr_bool(j, &is);
    case JR_NULL:
        return word(j, "null");
    default:
        return jr_fail(j, j->p < j->end ? "a value" : "a value (the text ends here)");
    }
}

bool jr_skip(struct json_reader *j, const char **start, const char **end)
{
    char close[JR_MAX_DEPTH];
    bool first = false; /* of the innermost list; enclosing ones already have a member */
    int depth = 0;
    enum jr_kind kind = jr_next(j);
    if (start)
        *start = j->p;
    do {
        const char *name;
        size_t n;
        if (depth) {
            if (!jr_more(j, close[depth - 1], &first)) {
                depth--;
                continue;
            }
            if (close[depth - 1] == '}' && !jr_name(j, &name, &n))
                return false;
            kind = jr_next(j);
        }
        if (kind != JR_OBJECT && kind != JR_ARRAY) {
            if (!skip_scalar(j, kind))
                return false;
            continue;
        }
        if (depth == JR_MAX_DEPTH)
            return jr_fail(j, "less nesting");
        j->p++;
        close[depth++] = kind == JR_OBJECT ? '}' : ']';
        first = true;
    } while (depth && !j->fault);
    if (end)
        *end = j->p;
    return !j->fault;
}

bool jr_ended(struct json_reader *j)
{
    white(j);
    return !j->fault && j->p == j->end;
}
