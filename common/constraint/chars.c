/* chars.c - encodes sets of code points as bytes: UTF-8 ranges and JSON escapes. */
#include "common/constraint/chars.h"
#include "common/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void chars_add(struct chars *c, uint32_t first, uint32_t last)
{
    if (c->n == CHARS_MAX_RANGES)
        chars_tidy(c);
    if (c->n == CHARS_MAX_RANGES) {
        c->overflow = true;
        return;
    }
    c->at[c->n].first = first;
    c->at[c->n++].last = last;
}

static int by_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void chars_tidy(struct chars *c)
{
    uint32_t n = 0;
    qsort(c->at, c->n, sizeof(c->at[0]), by_first);
    for (uint32_t i = 0; i < c->n; i++) {
        if (n && c->at[i].first <= c->at[n - 1].last + 1) {
            if (c->at[i].last > c->at[n - 1].last)
                c->at[n - 1].last = c->at[i].last;
            continue;
        }
        c->at[n++] = c->at[i];
    }
    c->n = n;
}

void chars_invert(struct chars *c)
{
    struct chars r = {.overflow = c->overflow};
    uint32_t next = 0;
    chars_tidy(c);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->at[i].first > next)
            chars_add(&r, next, c->at[i].first - 1);
        next = c->at[i].last + 1;
    }
    if (next <= CHAR_LAST)
        chars_add(&r, next, CHAR_LAST);
    *c = r;
}

/* ---------------------------------------------------------------- UTF-8 */

static term one_byte(struct term_pool *p, unsigned first, unsigned last)
{
    struct byte_set s = {{0}};
    byte_set_add(&s, first, last);
    return term_set(p, &s);
}

/* Characters of equal encoded length, between encodings `a` and `b`: split until the first bytes
 * are equal, or all bytes below are unrestricted. */
static term same_length(struct term_pool *p, const uint8_t *a, const uint8_t *b, size_t n)
{
    if (n == 1)
        return one_byte(p, a[0], b[0]);
    static const uint8_t low[4] = {0x80, 0x80, 0x80, 0x80}, high[4] = {0xbf, 0xbf, 0xbf, 0xbf};
    if (a[0] == b[0])
        return term_cat(p, one_byte(p, a[0], a[0]), same_length(p, a + 1, b + 1, n - 1));
    unsigned first = a[0], last = b[0];
    term t = TERM_NONE;
    if (memcmp(a + 1, low, n - 1) != 0) {
        t = term_cat(p, one_byte(p, first, first), same_length(p, a + 1, high, n - 1));
        first++;
    }
    if (memcmp(b + 1, high, n - 1) != 0) {
        t = term_alt(p, t, term_cat(p, one_byte(p, last, last), same_length(p, low, b + 1, n - 1)));
        last--;
    }
    if (first <= last)
        t = term_alt(p, t, term_cat(p, one_byte(p, first, last), same_length(p, low, high, n - 1)));
    return t;
}

static term utf8_range(struct term_pool *p, uint32_t first, uint32_t last)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff, CHAR_LAST};
    term t = TERM_NONE;
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends) && first <= last; i++) {
        uint32_t to = last < ends[i] ? last : ends[i];
        char a[4], b[4];
        if (first > ends[i])
            continue;
        if (ends[i] != 0xdfff) { /* surrogates are excluded */
            size_t n = utf8_encode(first, a);
            utf8_encode(to, b);
            t = term_alt(p, t, same_length(p, (uint8_t *)a, (uint8_t *)b, n));
        }
        first = to + 1;
    }
    return t;
}

/* ---------------------------------------------------------------- JSON strings */

/* The escape of a character that a JSON string cannot contain; 0 bytes: not needed. */
static size_t json_escape(uint32_t cp, char out[8])
{
    static const char named[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    const char *at = cp && cp < 0x80 ? strchr(named, (int)cp) : NULL;
    if (at) {
        out[0] = '\\';
        out[1] = letter[at - named];
        return 2;
    }
    return cp < 0x20 ? (size_t)snprintf(out, 8, "\\u%04x", (unsigned)cp) : 0;
}

static bool escaped(uint32_t cp) { return cp < 0x20 || cp == '"' || cp == '\\'; }

term chars_term(struct term_pool *p, struct chars *c, enum spelling how)
{
    term part[CHARS_MAX_RANGES + 2 * '\\']; /* each escaped character may split a range */
    size_t k = 0;
    chars_tidy(c);
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t first = c->at[i].first, last = c->at[i].last;
        while (how == SPELL_JSON && first <= last && first <= '\\') {
            char text[8];
            uint32_t to = first;
            while (to < last && !escaped(to) && !escaped(to + 1))
                to++;
            size_t n = json_escape(first, text);
            part[k++] = n ? term_bytes_of(p, text, n) : utf8_range(p, first, to);
            first = n ? first + 1 : to + 1;
        }
        if (first <= last)
            part[k++] = utf8_range(p, first, last);
    }
    return term_alt_n(p, part, k);
}

term chars_any_term(struct term_pool *p, enum spelling how)
{
    struct chars c = {.n = 0};
    chars_invert(&c);
    return chars_term(p, &c, how);
}

term chars_json_text(struct term_pool *p, const char *text, size_t n)
{
    char *out = malloc(n * 6 + 1); /* \u0001 is the longest escape */
    size_t len = 0;
    if (!out)
        term_no_memory(p);
    for (size_t i = 0; out && i < n; i++) {
        char esc[8];
        /* U+0000 as in common/json/exact.h */
        bool nul = i + 1 < n && !memcmp(text + i, "\xc0\x80", 2);
        size_t m = json_escape(nul ? 0 : (uint8_t)text[i], esc);
        i += nul;
        if (m)
            memcpy(out + len, esc, m);
        else
            out[len] = text[i];
        len += m ? m : 1;
    }
    term t = out ? term_bytes_of(p, out, len) : TERM_NONE;
    free(out);
    return t;
}
