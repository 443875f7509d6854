/* Oniguruma's dialect to PCRE2's: one pass, left to right. */
#include "common/tokenizer/regex.h"
#include "common/tokenizer/unicode.h"
#include <ctype.h>
#include <string.h>

#define WHITE                                                                                      \
    "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"        \
    "\\x{205F}\\x{3000}"
#define NOT_WHITE                                                                                  \
    "\\x{0}-\\x08\\x0E-\\x1F\\x21-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}"      \
    "\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}"                 \
    "\\x{3001}-\\x{10FFFF}"

enum { MAX_GROUPS = 64 };

struct translation {
    const char *s, *end;
    struct buf *out;
    struct err *e;
    size_t atom;               /* where the last complete atom begins in `out` */
    size_t group[MAX_GROUPS];  /* beginnings of the open groups */
    unsigned in_class, groups; /* how many are open */
};

static int unsupported(struct translation *t, const char *what)
{
    return err_set(t->e, ERR_VALIDATION, "regular expression: %s is not supported", what);
}

static bool next_is(const struct translation *t, char c) { return t->s < t->end && *t->s == c; }

/* A category as items of a class: PCRE2's idea of it and the characters it is too old to know. */
static void category(struct translation *t, const char *name, size_t n)
{
    size_t i = 0;
    uint32_t first, last, set = uni_category_set(name, n);
    buf_fmt(t->out, "\\p{%.*s}", (int)n, name);
    while (set && uni_newer_range(set, &i, &first, &last))
        buf_fmt(t->out, "\\x{%X}-\\x{%X}", first, last);
}

/* After \p or \P: the name, and whether a caret negates it. */
static int property_name(struct translation *t, const char **name, size_t *n, bool *caret)
{
    *caret = false;
    if (t->s == t->end)
        return unsupported(t, "\\p without a name");
    if (*t->s != '{') {
        *name = t->s++;
        *n = 1;
        return 0;
    }
    const char *close = memchr(t->s, '}', (size_t)(t->end - t->s));
    if (!close)
        return unsupported(t, "\\p{ without }");
    t->s++;
    if (next_is(t, '^'))
        *caret = true, t->s++;
    *name = t->s;
    *n = (size_t)(close - t->s);
    t->s = close + 1;
    return *n ? 0 : unsupported(t, "\\p{}");
}

/* \s \w \d \h \p{..} and their opposites: a class of their own, or items of the class around. */
static int set_escape(struct translation *t, char c)
{
    const char *name = "Nd";
    size_t n = 2;
    bool negated = isupper((unsigned char)c), caret = false;
    char kind = (char)tolower((unsigned char)c);
    if (kind == 'p' && property_name(t, &name, &n, &caret) != 0)
        return -1;
    negated ^= caret;
    if (t->in_class && negated) {
        if (kind == 'w' || kind == 'h')
            return unsupported(t, "\\W or \\H in a class");
        if (kind == 's')
            buf_str(t->out, NOT_WHITE);
        else
            buf_fmt(t->out, "\\P{%.*s}", (int)n, name);
        return 0;
    }
    if (!t->in_class)
        buf_str(t->out, negated ? "[^" : "[");
    if (kind == 's') {
        buf_str(t->out, WHITE);
    } else if (kind == 'h') {
        buf_str(t->out, "0-9a-fA-F");
    } else {
        category(t, kind == 'w' ? "L" : name, kind == 'w' ? 1 : n);
        if (kind == 'w') {
            category(t, "M", 1);
            category(t, "Nd", 2);
            category(t, "Nl", 2);
            category(t, "Pc", 2);
            buf_str(t->out, "\\xB2\\xB3\\xB9\\xBC-\\xBE\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"
                            "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}");
        }
    }
    if (!t->in_class)
        buf_ch(t->out, ']');
    return 0;
}

static int escape(struct translation *t)
{
    if (t->s == t->end)
        return unsupported(t, "a backslash at the end");
    char c = *t->s++;
    if (!t->in_class)
        t->atom = t->out->len;
    if (c && strchr("sSwWdDhHpP", c))
        return set_escape(t, c);
    if (c == 'v') {
        buf_str(t->out, "\\x0B");
    } else if (c == 'u') {
        if (t->end - t->s < 4)
            return unsupported(t, "\\u without four digits");
        buf_fmt(t->out, "\\x{%.4s}", t->s);
        t->s += 4;
    } else if (isalpha((unsigned char)c) && !strchr("nrtfaexbBAzZGRXK", c)) {
        return unsupported(t, "this escape");
    } else {
        buf_ch(t->out, '\\');
        buf_ch(t->out, c);
    }
    return 0;
}

/* One item of a class that is open; nested classes are poured into the outer one. */
static int class_item(struct translation *t)
{
    char c = *t->s++;
    if (c == '\\')
        return escape(t);
    if (c == '[' && next_is(t, ':')) {
        const char *close = memmem(t->s, (size_t)(t->end - t->s), ":]", 2);
        if (!close)
            return unsupported(t, "an open [:");
        buf_add(t->out, t->s - 1, (size_t)(close + 2 - (t->s - 1)));
        t->s = close + 2;
    } else if (c == '[') {
        if (next_is(t, '^'))
            return unsupported(t, "a negated class in a class");
        t->in_class++;
        if (next_is(t, '-'))
            buf_str(t->out, "\\-"), t->s++;
    } else if (c == ']') {
        if (--t->in_class == 0)
            buf_ch(t->out, ']');
    } else if (c == '&' && next_is(t, '&')) {
        return unsupported(t, "an intersection of classes");
    } else if (c == '-' && t->in_class > 1 && next_is(t, ']')) {
        buf_str(t->out, "\\-");
    } else {
        buf_ch(t->out, c);
    }
    return 0;
}

static void class_open(struct translation *t)
{
    t->atom = t->out->len;
    t->in_class = 1;
    buf_ch(t->out, '[');
    if (next_is(t, '^'))
        buf_ch(t->out, *t->s++);
    if (next_is(t, ']')) /* first in its class: itself */
        buf_str(t->out, "\\]"), t->s++;
}

static int group_open(struct translation *t)
{
    if (t->groups == MAX_GROUPS)
        return unsupported(t, "nesting this deep");
    t->group[t->groups++] = t->out->len;
    buf_ch(t->out, '(');
    if (next_is(t, '*'))
        return unsupported(t, "(*");
    if (!next_is(t, '?'))
        return 0;
    buf_ch(t->out, *t->s++);
    if (next_is(t, '~') || next_is(t, '('))
        return unsupported(t, "(?~ or (?(");
    /* (?m) here is what the others call (?s) */
    while (t->s < t->end && (isalpha((unsigned char)*t->s) || *t->s == '-')) {
        char c = *t->s++;
        buf_ch(t->out, c == 'm' ? 's' : c);
    }
    return 0;
}

/* {n,m}: true if one stands at t->s (behind its brace); copies it. */
static bool interval(struct translation *t)
{
    const char *p = t->s;
    while (p < t->end && (isdigit((unsigned char)*p) || *p == ','))
        p++;
    if (p == t->s || p == t->end || *p != '}' || (p - t->s == 1 && *t->s == ','))
        return false;
    buf_str(t->out, *t->s == ',' ? "{0" : "{");
    buf_add(t->out, t->s, (size_t)(p + 1 - t->s));
    t->s = p + 1;
    if (next_is(t, '+')) { /* repeated, not possessive */
        size_t n = t->out->len - t->atom;
        if (buf_reserve(t->out, 8) == 0) {
            memmove(t->out->p + t->atom + 3, t->out->p + t->atom, n);
            memcpy(t->out->p + t->atom, "(?:", 3);
            t->out->len += 3;
            buf_ch(t->out, ')');
        }
    }
    return true;
}

static int item(struct translation *t)
{
    char c = *t->s++;
    if (c == '\\')
        return escape(t);
    if (c == '[')
        return class_open(t), 0;
    if (c == '(')
        return group_open(t);
    if (c == ')') {
        if (!t->groups)
            return unsupported(t, "a ) that was not opened");
        t->atom = t->group[--t->groups];
    } else if (c == '{') {
        if (interval(t))
            return 0;
        t->atom = t->out->len;
        buf_ch(t->out, '\\');
    } else if (!strchr("*+?", c) && ((unsigned char)c & 0xC0) != 0x80) {
        t->atom = t->out->len;
    }
    buf_ch(t->out, c);
    return 0;
}

int regex_translate(const char *pattern, size_t n, struct buf *out, struct err *e)
{
    struct translation t = {.s = pattern, .end = pattern + n, .out = out, .e = e};
    buf_reset(out);
    while (t.s < t.end)
        if ((t.in_class ? class_item(&t) : item(&t)) != 0)
            return -1;
    if (t.in_class)
        return unsupported(&t, "a class without ]");
    return out->oom ? err_nomem(e) : 0;
}
