#include "common/tokenizer/jscan.h"
#include "common/utf8.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool js_fail(struct jscan *j, const char *expected)
{
    if (!j->fault)
        j->fault = expected;
    return false;
}

char js_peek(struct jscan *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r'))
        j->p++;
    return j->p < j->end && !j->fault ? *j->p : 0;
}

bool js_open(struct jscan *j, char c)
{
    if (js_peek(j) != c)
        return js_fail(j, c == '{' ? "an object" : "an array");
    j->p++;
    return true;
}

bool js_more(struct jscan *j, char close, bool *first)
{
    char c = js_peek(j);
    if (j->fault)
        return false;
    if (c == close)
        return j->p++, false;
    if (!*first) {
        if (c != ',')
            return js_fail(j, "',' or the end of the list");
        j->p++;
        js_peek(j);
    }
    *first = false;
    return j->p < j->end ? true : js_fail(j, "a value (the text ends here)");
}

static bool hex4(struct jscan *j, uint32_t *v)
{
    *v = 0;
    if (j->end - j->p < 4)
        return js_fail(j, "four hexadecimal digits");
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)*j->p++, low = c | 32;
        if (c >= '0' && c <= '9')
            *v = *v << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            *v = *v << 4 | (uint32_t)(low - 'a' + 10);
        else
            return js_fail(j, "four hexadecimal digits");
    }
    return true;
}

static bool unicode_escape(struct jscan *j, struct buf *out)
{
    uint32_t cp, low;
    char u[4];
    if (!hex4(j, &cp))
        return false;
    if (cp >= 0xD800 && cp < 0xDC00) {
        if (j->end - j->p < 6 || j->p[0] != '\\' || j->p[1] != 'u')
            return js_fail(j, "the second half of a surrogate pair");
        j->p += 2;
        if (!hex4(j, &low))
            return false;
        if (low < 0xDC00 || low > 0xDFFF)
            return js_fail(j, "the second half of a surrogate pair");
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    }
    size_t n = utf8_encode(cp, u);
    if (!n)
        return js_fail(j, "a character (lone surrogate)");
    buf_add(out, u, n);
    return true;
}

static bool escape(struct jscan *j, struct buf *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (j->p == j->end)
        return js_fail(j, "the end of a string");
    char c = *j->p++;
    if (c == 'u')
        return unicode_escape(j, out);
    const char *at = c ? strchr(from, c) : NULL;
    if (!at)
        return js_fail(j, "a known escape");
    buf_ch(out, to[at - from]);
    return true;
}

bool js_string(struct jscan *j, struct buf *out)
{
    buf_reset(out);
    if (js_peek(j) != '"')
        return js_fail(j, "a string");
    j->p++;
    for (;;) {
        const char *run = j->p;
        while (j->p < j->end && *j->p != '"' && *j->p != '\\')
            j->p++;
        buf_add(out, run, (size_t)(j->p - run));
        if (j->p == j->end)
            return js_fail(j, "the end of a string");
        if (*j->p++ == '"')
            return out->oom ? js_fail(j, "more memory") : true;
        if (!escape(j, out))
            return false;
    }
}

bool js_key(struct jscan *j, struct buf *out)
{
    if (!js_string(j, out))
        return false;
    if (js_peek(j) != ':')
        return js_fail(j, "':'");
    j->p++;
    return true;
}

/* The reference reads numbers with serde_json, which is not exact in the last bit: digits into 64
 * bits, then one multiplication or division. Scores of a vocabulary decide ties by that bit. */
static double from_parts(uint64_t digits, int64_t exponent)
{
    char power[16];
    double f = (double)digits;
    for (; exponent < -308 && f != 0; exponent += 308)
        f /= 1e308;
    if (exponent > 308 || exponent < -308)
        return f == 0 ? 0 : (double)INFINITY;
    snprintf(power, sizeof power, "1e%d", (int)(exponent < 0 ? -exponent : exponent));
    return exponent < 0 ? f / strtod(power, NULL) : f * strtod(power, NULL);
}

static bool digit(const struct jscan *j) { return j->p < j->end && *j->p >= '0' && *j->p <= '9'; }

/* Digits into *v as long as they fit; returns how many did not. */
static int64_t read_digits(struct jscan *j, uint64_t *v, int64_t *taken)
{
    int64_t lost = 0;
    for (; digit(j); j->p++) {
        if (lost || *v > (UINT64_MAX - 9) / 10) {
            lost++;
        } else {
            *v = *v * 10 + (uint64_t)(*j->p - '0');
            ++*taken;
        }
    }
    return lost;
}

static bool read_exponent(struct jscan *j, int64_t *exponent)
{
    uint64_t e = 0;
    int64_t taken = 0;
    if (j->p == j->end || (*j->p | 32) != 'e')
        return true;
    j->p++;
    bool down = j->p < j->end && *j->p == '-';
    if (j->p < j->end && (*j->p == '-' || *j->p == '+'))
        j->p++;
    if (!digit(j))
        return js_fail(j, "an exponent");
    if (read_digits(j, &e, &taken) || e > 100000)
        e = 100000;
    *exponent += down ? -(int64_t)e : (int64_t)e;
    return true;
}

bool js_number(struct jscan *j, double *v)
{
    uint64_t digits = 0;
    int64_t whole = 0, part = 0, exponent;
    js_peek(j);
    if (j->fault)
        return false;
    bool negative = j->p < j->end && *j->p == '-';
    j->p += negative;
    if (!digit(j))
        return js_fail(j, "a number");
    exponent = read_digits(j, &digits, &whole);
    if (j->p < j->end && *j->p == '.') {
        j->p++;
        if (!digit(j))
            return js_fail(j, "a digit");
        if (exponent) /* no room for more: the rest is read and dropped */
            read_digits(j, &(uint64_t){UINT64_MAX}, &part);
        else
            read_digits(j, &digits, &part);
        exponent -= part;
    }
    if (!read_exponent(j, &exponent))
        return false;
    *v = from_parts(digits, exponent);
    if (negative)
        *v = -*v;
    return true;
}

/* One string, without looking at what it says. */
static bool skip_string(struct jscan *j)
{
    for (j->p++; j->p < j->end; j->p++) {
        if (*j->p == '"')
            return j->p++, true;
        if (*j->p == '\\' && ++j->p == j->end)
            break;
    }
    return js_fail(j, "the end of a string");
}

/* Brackets are counted, not matched by kind: what is inside is read again by somebody who cares. */
bool js_skip(struct jscan *j, const char **start, const char **end)
{
    size_t depth = 0;
    if (!js_peek(j))
        return js_fail(j, "a value (the text ends here)");
    *start = j->p;
    do {
        char c = js_peek(j);
        if (c == '"') {
            if (!skip_string(j))
                return false;
        } else if (c == '{' || c == '[') {
            depth++, j->p++;
        } else if (c == '}' || c == ']') {
            if (!depth)
                return js_fail(j, "a value");
            depth--, j->p++;
        } else if (c && (depth || !strchr(",:", c))) {
            j->p++;
            while (!depth && j->p < j->end && !strchr(" \t\r\n,:}]", *j->p))
                j->p++;
        } else {
            return js_fail(j, c ? "a value" : "a closing bracket (the text ends here)");
        }
    } while (depth);
    *end = j->p;
    return true;
}
