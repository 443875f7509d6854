/* Translates Oniguruma's dialect to PCRE2's in one pass, left to right. */
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
    struct buf *out, *beside; /* in a class: its items, and alternative classes */
    struct err *e;
    size_t atom;               /* start of the last complete atom in `out` */
    size_t closed;             /* end in `out` of the last group */
    size_t group[MAX_GROUPS];  /* starts of the open groups */
    unsigned in_class, groups; /* number of open groups */
};

static int unsupported(struct translation *t, const char *what)
{
    return err_set(t->e, ERR_VALIDATION, "regular expression: %s is not supported", what);
}

static bool next_is(const struct translation *t, char c) { return t->s < t->end && *t->s == c; }

/* Long names of categories, which PCRE2 does not have. */
static const char *const long_names[][2] = {
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"digit", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"privateuse", "Co"},
    {"unassigned", "Cn"},
};

/* Case, spaces, hyphens and underscores of a name do not count. */
static bool name_is(const char *name, size_t n, const char *want)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" -_", name[i]) && tolower((unsigned char)name[i]) != *want++)
            return false;
    return !*want;
}

/* \p{name} or \P{name}. A script is the property Script: PCRE2 itself reads \p{Han} as
 * Script_Extensions, which include punctuation that several scripts share. */
static void property(struct translation *t, char p, const char *name, size_t n)
{
    const char *script = regex_is_script(name, n) ? "sc:" : "";
    buf_fmt(t->out, "\\%c{%s%.*s}", p, script, (int)n, name);
}

/* A category as class items: PCRE2's version plus characters newer than its tables. */
static void category(struct translation *t, const char *name, size_t n)
{
    size_t i = 0;
    uint32_t first, last, set = uni_category_set(name, n);
    property(t, 'p', name, n);
    while (set && uni_newer_range(set, &i, &first, &last))
        buf_fmt(t->out, "\\x{%X}-\\x{%X}", first, last);
}

/* \w as items of a class. Outside of a written class it includes superscripts and fractions of
 * Latin-1, which Oniguruma reads from a table of its own there. */
static void word(struct translation *t)
{
    category(t, "L", 1);
    category(t, "M", 1);
    category(t, "Nd", 2);
    category(t, "Nl", 2);
    category(t, "Pc", 2);
    if (!t->in_class)
        buf_str(t->out, "\\xB2\\xB3\\xB9\\xBC-\\xBE");
    buf_str(t->out, "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"
                    "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}");
}

/* \b or \B: between a \w character and another one. PCRE2's own versions exclude marks. */
static void boundary(struct translation *t, bool between)
{
    static const char *const parts[2][4] = {{"(?:(?<=[", "])(?=[", "])|(?<![", "])(?!["},
                                            {"(?:(?<=[", "])(?![", "])|(?<![", "])(?=["}};
    for (int i = 0; i < 4; i++) {
        buf_str(t->out, parts[between][i]);
        word(t);
    }
    buf_str(t->out, "]))");
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
    for (size_t i = 0; *n > 2 && i < sizeof(long_names) / sizeof(long_names[0]); i++)
        if (name_is(*name, *n, long_names[i][0])) {
            *name = long_names[i][1];
            *n = strlen(*name);
        }
    return *n ? 0 : unsupported(t, "\\p{}");
}

/* \s \w \d \h \p{..} and their negations: as a class, or as items of the enclosing class. */
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
        if (kind == 'w' || kind == 'h') { /* not a list of items: an alternative class */
            struct buf *items = t->out;
            t->out = t->beside;
            buf_str(t->out, kind == 'w' ? "|[^" : "|[^0-9a-fA-F");
            if (kind == 'w')
                word(t);
            buf_ch(t->out, ']');
            t->out = items;
            return 0;
        }
        if (kind == 's')
            buf_str(t->out, NOT_WHITE);
        else
            property(t, 'P', name, n);
        return 0;
    }
    if (!t->in_class)
        buf_str(t->out, negated ? "[^" : "[");
    if (kind == 's') {
        buf_str(t->out, WHITE);
    } else if (kind == 'h') {
        buf_str(t->out, "0-9a-fA-F");
    } else if (kind == 'w') {
        word(t);
    } else {
        category(t, name, n);
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
    if (!t->in_class && (c == 'b' || c == 'B')) {
        boundary(t, c == 'b');
    } else if (c == 'v') {
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

/* ---------------------------------------------------------------- classes */

/* [:name:] as items of a class. */
static const struct {
    const char *name, *items;
} posix[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"ascii", "\\x{0}-\\x7F"},
    {"blank", "\\p{Zs}\\x09"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"graph", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"},
    {"lower", "\\p{Lowercase}"},
    {"print", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}\\p{Zs}"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", WHITE},
    {"upper", "\\p{Uppercase}"},
    {"word", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"},
    {"xdigit", "0-9a-fA-F"},
};

/* After "[:". */
static int posix_class(struct translation *t)
{
    const char *close = memmem(t->s, (size_t)(t->end - t->s), ":]", 2);
    if (!close)
        return unsupported(t, "an open [:");
    bool negated = next_is(t, '^');
    t->s += negated;
    size_t n = (size_t)(close - t->s), i = 0;
    while (i < sizeof(posix) / sizeof(posix[0]) &&
           (strlen(posix[i].name) != n || memcmp(posix[i].name, t->s, n) != 0))
        i++;
    if (i == sizeof(posix) / sizeof(posix[0]))
        return unsupported(t, "this [:name:]");
    if (negated)
        buf_fmt(t->beside, "|[^%s]", posix[i].items);
    else
        buf_str(t->out, posix[i].items);
    t->s = close + 2;
    return 0;
}

/* A class being parsed. PCRE2 supports neither intersections nor alternatives in a class: these
 * become look-ahead, and classes beside it. */
struct class
{
    struct buf items, beside, ahead;
    bool negated, several; /* several: it is part of an intersection */
};

static void class_free(struct class *c)
{
    buf_free(&c->items);
    buf_free(&c->beside);
    buf_free(&c->ahead);
}

/* One operand of an intersection, as an expression for one character. */
static void operand(const struct class *c, struct buf *out)
{
    const char *beside = c->beside.len ? c->beside.p : "";
    if (!c->items.len)
        buf_fmt(out, c->beside.len ? "(?:%s)" : "(?!)", c->beside.len ? beside + 1 : "");
    else if (c->beside.len)
        buf_fmt(out, "(?:[%s]%s)", c->items.p, beside);
    else
        buf_fmt(out, "[%s]", c->items.p);
    if (c->items.oom || c->beside.oom)
        out->oom = true;
}

static int class(struct translation *t, struct class *c);

/* A nested class: its items are merged into the outer class if that is equivalent. */
static int nested(struct translation *t, struct class *outer)
{
    struct class c = {BUF_INIT, BUF_INIT, BUF_INIT, false, false};
    int rc = class(t, &c);
    if (rc == 0 && !c.negated && !c.several) {
        buf_add(&outer->items, c.items.p ? c.items.p : "", c.items.len);
        buf_add(&outer->beside, c.beside.p ? c.beside.p : "", c.beside.len);
    } else if (rc == 0) {
        buf_ch(&outer->beside, '|');
        buf_str(&outer->beside, c.negated ? "(?:(?!" : "(?:");
        buf_add(&outer->beside, c.ahead.p ? c.ahead.p : "", c.ahead.len);
        operand(&c, &outer->beside);
        buf_str(&outer->beside, c.negated ? ")(?s:.))" : ")");
    }
    outer->beside.oom |= c.ahead.oom;
    class_free(&c);
    return rc;
}

static int class_item(struct translation *t, struct class *c, bool *set)
{
    char i = *t->s++;
    bool was_set = *set;
    *set = false;
    t->out = &c->items;
    t->beside = &c->beside;
    if (i == '\\') {
        *set = t->s < t->end && strchr("sSwWdDhHpP", *t->s);
        return escape(t);
    }
    if (i == '[') {
        *set = true;
        if (!next_is(t, ':'))
            return nested(t, c);
        t->s++;
        return posix_class(t);
    }
    if (i == '&' && next_is(t, '&')) {
        t->s++;
        buf_str(&c->ahead, "(?=");
        operand(c, &c->ahead);
        buf_ch(&c->ahead, ')');
        buf_reset(&c->items);
        buf_reset(&c->beside);
        c->several = true;
    } else if (i == '-' && (was_set || !c->items.len || next_is(t, ']'))) {
        buf_str(&c->items, "\\-"); /* not a range */
    } else {
        buf_ch(&c->items, i);
    }
    return 0;
}

/* After '['. */
static int class(struct translation *t, struct class *c)
{
    struct buf *out = t->out, *beside = t->beside;
    bool set = false;
    int rc = 0;
    if (++t->in_class > MAX_GROUPS)
        return unsupported(t, "nesting this deep");
    if (next_is(t, '^'))
        c->negated = true, t->s++;
    if (next_is(t, ']')) /* literal as the first item */
        buf_str(&c->items, "\\]"), t->s++;
    while (rc == 0 && t->s < t->end && !next_is(t, ']'))
        rc = class_item(t, c, &set);
    t->out = out;
    t->beside = beside;
    t->in_class--;
    if (rc == 0 && t->s++ == t->end)
        return unsupported(t, "a class without ]");
    return rc;
}

static int class_open(struct translation *t)
{
    struct class c = {BUF_INIT, BUF_INIT, BUF_INIT, false, false};
    t->atom = t->out->len;
    int rc = class(t, &c);
    if (rc == 0 && !c.several && !c.beside.len) {
        buf_str(t->out, c.negated ? "[^" : "[");
        buf_add(t->out, c.items.p ? c.items.p : "", c.items.len);
        buf_ch(t->out, ']');
    } else if (rc == 0) {
        buf_str(t->out, c.negated ? "(?:(?!" : "(?:");
        buf_add(t->out, c.ahead.p ? c.ahead.p : "", c.ahead.len);
        operand(&c, t->out);
        buf_str(t->out, c.negated ? ")(?s:.))" : ")");
    }
    t->out->oom |= c.items.oom || c.ahead.oom;
    class_free(&c);
    return rc;
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
    /* Oniguruma's (?m) is (?s) in other dialects */
    while (t->s < t->end && (isalpha((unsigned char)*t->s) || *t->s == '-')) {
        char c = *t->s++;
        buf_ch(t->out, c == 'm' ? 's' : c);
    }
    return 0;
}

/* {n,m}: true if one is at t->s (after its brace); copies it. */
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

/* True unless the group from there in `out` is named, atomic or looks around. */
static bool is_plain(const struct translation *t, size_t start)
{
    const char *p = t->out->p + start;
    return start + 2 < t->out->len && (p[1] != '?' || !strchr("=!<>", p[2]));
}

/* At the end of a loop's own atom and sign: true if the match may end after each round of the loop.
 * No more than the ends of groups follow, repeated or not, up to the end of an alternative of the
 * whole expression. */
static bool ends_match(const struct translation *t)
{
    const char *p = t->s;
    for (unsigned i = t->groups; i > 0; i--) {
        if (p == t->end || *p++ != ')' || !is_plain(t, t->group[i - 1]))
            return false;
        if (p < t->end && strchr("*+?", *p))
            p++;
    }
    return p == t->end || *p == '|';
}

/* After * or + of a group. Where every round may be the last one, none is ever taken back. So the
 * loop is made possessive, which takes no memory for each round. */
static void loop(struct translation *t)
{
    if (is_plain(t, t->atom) && ends_match(t))
        buf_ch(t->out, '+');
}

static int item(struct translation *t)
{
    char c = *t->s++;
    if (c == '\\')
        return escape(t);
    if (c == '[')
        return class_open(t);
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
    const bool of_group = t->closed && t->closed == t->out->len;
    buf_ch(t->out, c);
    if (c == ')')
        t->closed = t->out->len;
    else if (of_group && (c == '*' || c == '+') && !t->out->oom)
        loop(t);
    return 0;
}

int regex_translate(const char *pattern, size_t n, struct buf *out, struct err *e)
{
    struct translation t = {.s = pattern, .end = pattern + n, .out = out, .e = e};
    buf_reset(out);
    while (t.s < t.end)
        if (item(&t) != 0)
            return -1;
    return out->oom ? err_nomem(e) : 0;
}
