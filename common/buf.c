#include "common/buf.h"
#include "common/utf8.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void buf_free(struct buf *b)
{
    free(b->p);
    *b = (struct buf)BUF_INIT;
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    b->oom = false;
    if (b->p)
        b->p[0] = 0;
}

int buf_reserve(struct buf *b, size_t extra)
{
    if (b->p && extra < b->cap - b->len)
        return 0;
    size_t cap = b->cap ? b->cap : 64;
    while (cap - b->len <= extra) {
        if (cap > SIZE_MAX / 2)
            return b->oom = true, -1;
        cap *= 2;
    }
    char *p = realloc(b->p, cap);
    if (!p)
        return b->oom = true, -1;
    b->p = p;
    b->cap = cap;
    p[b->len] = 0;
    return 0;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    if (buf_reserve(b, n) != 0)
        return;
    if (n)
        memcpy(b->p + b->len, p, n);
    b->len += n;
    b->p[b->len] = 0;
}

void buf_str(struct buf *b, const char *s) { buf_add(b, s, strlen(s)); }
void buf_ch(struct buf *b, char c) { buf_add(b, &c, 1); }

void buf_fmt(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || buf_reserve(b, (size_t)n) != 0)
        return;
    va_start(ap, fmt);
    vsnprintf(b->p + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

char *buf_take(struct buf *b)
{
    if (buf_reserve(b, 0) != 0)
        return NULL;
    char *p = b->p;
    *b = (struct buf)BUF_INIT;
    return p;
}

void buf_u64(struct buf *b, uint64_t v)
{
    char tmp[20];
    size_t at = sizeof(tmp);
    do
        tmp[--at] = (char)('0' + v % 10);
    while (v /= 10);
    buf_add(b, tmp + at, sizeof(tmp) - at);
}

void buf_json_f32(struct buf *b, float v)
{
    char tmp[32];
    if (!isfinite(v)) {
        buf_str(b, "null");
        return;
    }
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(tmp, sizeof(tmp), "%.*g", digits, (double)v);
        if (strtof(tmp, NULL) == v)
            break;
    }
    buf_str(b, tmp);
    if (!strpbrk(tmp, ".e")) /* 1 -> 1.0, so that typed readers see a float */
        buf_str(b, ".0");
}

void buf_json_str(struct buf *b, const char *s, size_t n)
{
    static const char short_escape[] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    size_t from = 0, i = 0;

    buf_ch(b, '"');
    while (i < n) {
        unsigned char c = (unsigned char)s[i];
        size_t len = c < 0x80 ? 1 : utf8_valid_len(s + i, n - i);
        if (len && c >= 0x20 && c != '"' && c != '\\') {
            i += len;
            continue;
        }
        buf_add(b, s + from, i - from);
        if (!len)
            buf_str(b, "\xEF\xBF\xBD");
        else if (c == '"' || c == '\\')
            buf_fmt(b, "\\%c", c);
        else if (c < sizeof(short_escape) && short_escape[c])
            buf_fmt(b, "\\%c", short_escape[c]);
        else
            buf_fmt(b, "\\u%04x", c);
        from = ++i;
    }
    buf_add(b, s + from, i - from);
    buf_ch(b, '"');
}

void buf_base64(struct buf *b, const void *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *s = p;
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const unsigned v = (unsigned)s[i] << 16 | (left > 1 ? (unsigned)s[i + 1] << 8 : 0) |
                           (left > 2 ? s[i + 2] : 0U);
        buf_ch(b, digits[v >> 18]);
        buf_ch(b, digits[v >> 12 & 63]);
        buf_ch(b, left > 1 ? digits[v >> 6 & 63] : '=');
        buf_ch(b, left > 2 ? digits[v & 63] : '=');
    }
}

void buf_json_time(struct buf *b, int64_t unix_seconds)
{
    const time_t t = (time_t)unix_seconds;
    struct tm tm;
    char text[32];
    gmtime_r(&t, &tm);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    buf_fmt(b, "\"%s\"", text);
}
