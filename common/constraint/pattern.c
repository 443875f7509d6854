/* pattern.c - recursive descent over a regular expression; each function returns the term of what
 * it read. */
#include "common/constraint/pattern.h"
#include "common/tokenizer/unicode.h"
#include "common/utf8.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200 };

struct parser {
    struct term_pool *p;
    const char *text;
    size_t n, at;
    enum spelling how;
    enum pattern_reach reach;
    int depth;
    bool failed;
    struct err *e;
    struct chars set, class, own; /* too large for the stack of a recursion: an atom's, a class's,
                                     and one escape's in a class */
};

static term fail(struct parser *q, const char *what)
{
    if (!q->failed)
        err_set(q->e, ERR_VALIDATION, "pattern: %s at byte %zu", what, q->at);
    q->failed = true;
    q->at = q->n;
    return TERM_NONE;
}

static bool more(const struct parser *q) { return q->at < q->n; }
static char peek(const struct parser *q) { return q->at < q->n ? q->text[q->at] : '\0'; }

static bool take(struct parser *q, const char *s)
{
    size_t n = strlen(s);
    if (q->n - q->at < n || memcmp(q->text + q->at, s, n) != 0)
        return false;
    q->at += n;
    return true;
}

static uint32_t next_char(struct parser *q)
{
    size_t len = 1;
    uint32_t cp = utf8_decode(q->text + q->at, q->n - q->at, &len);
    q->at += len;
    return cp;
}

/* ---------------------------------------------------------------- escapes */

/* Where the category changes: all code points are looked at once a process, not once a pattern. */
static struct category_run {
    uint32_t first;
    enum uni_category category;
} * runs;
static uint32_t n_runs;
static pthread_once_t runs_once = PTHREAD_ONCE_INIT;

static void find_runs(void)
{
    uint32_t cap = 0;
    for (uint32_t cp = 0; cp <= CHAR_LAST; cp++) {
        enum uni_category category = uni_category(cp);
        if (n_runs && runs[n_runs - 1].category == category)
            continue;
        if (n_runs == cap) {
            cap = cap ? cap * 2 : 4096;
            struct category_run *more = realloc(runs, cap * sizeof(*more));
            if (!more) {
                n_runs = 0;
                return;
            }
            runs = more;
        }
        runs[n_runs++] = (struct category_run){cp, category};
    }
}

static void add_category(struct parser *q, struct chars *c, uint32_t set)
{
    pthread_once(&runs_once, find_runs);
    term_work(q->p, n_runs / 8);
    for (uint32_t i = 0; i < n_runs; i++)
        if (set >> runs[i].category & 1)
            chars_add(c, runs[i].first, i + 1 < n_runs ? runs[i + 1].first - 1 : CHAR_LAST);
    chars_tidy(c);
    if (c->overflow || !n_runs)
        fail(q, "too many ranges of characters");
    if (term_spent(q->p))
        fail(q, "too complex");
}

/* Behind \p or \P: {L}, {Lu}, or one letter. */
static void property(struct parser *q, struct chars *c)
{
    size_t from = q->at, n = 1;
    if (take(q, "{")) {
        const char *end = memchr(q->text + q->at, '}', q->n - q->at);
        from = q->at;
        n = end ? (size_t)(end - (q->text + from)) : 0;
        q->at = end ? from + n + 1 : q->n;
    } else if (more(q)) {
        q->at++;
    }
    uint32_t set = from + n <= q->n && n ? uni_category_set(q->text + from, n) : 0;
    if (!set)
        fail(q, "a \\p that is no general category");
    else
        add_category(q, c, set);
}

static void add_shorthand(struct chars *c, char letter)
{
    if (letter == 'd' || letter == 'w')
        chars_add(c, '0', '9');
    if (letter == 'w') {
        chars_add(c, 'A', 'Z');
        chars_add(c, 'a', 'z');
        chars_add(c, '_', '_');
    }
    if (letter == 's') {
        chars_add(c, '\t', '\r');
        chars_add(c, ' ', ' ');
    }
}

/* `digits` hexadecimal ones, or any number in braces. */
static uint32_t hex(struct parser *q, int digits)
{
    bool braces = take(q, "{");
    uint32_t v = 0;
    int n = 0;
    for (; more(q) && (braces ? n < 8 : n < digits); n++, q->at++) {
        char c = peek(q);
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            break;
        v = v * 16 + (uint32_t)d;
    }
    if (!n || (!braces && n < digits) || (braces && !take(q, "}")) || v > CHAR_LAST)
        fail(q, "a bad hexadecimal escape");
    return v;
}

/* Behind the backslash: one character, or a set of them (*set gets it; then the result is 0). */
static uint32_t escape(struct parser *q, struct chars *set)
{
    static const char plain[] = "tnrfv0ae", value[] = "\t\n\r\f\v\0\a\x1b";
    if (!more(q))
        return (uint32_t)fail(q, "a backslash without anything behind it");
    char c = peek(q);
    const char *named = c ? strchr(plain, c) : NULL;
    if (strchr("dwsDWSpP", c)) {
        q->at++;
        if (c == 'p' || c == 'P')
            property(q, set);
        else
            add_shorthand(set, (char)(c | 0x20));
        if (c < 'a')
            chars_invert(set);
        return 0;
    }
    if (c == 'x' || c == 'u') {
        q->at++;
        return hex(q, c == 'x' ? 2 : 4);
    }
    if (named) {
        q->at++;
        return (uint8_t)value[named - plain];
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9'))
        return (uint32_t)fail(q, c >= '1' && c <= '9'   ? "a back reference"
                                 : c == 'b' || c == 'B' ? "a word boundary"
                                                        : "an unknown escape");
    return next_char(q);
}

/* ---------------------------------------------------------------- classes */

/* One end of a range, or a whole set. */
static bool class_item(struct parser *q, struct chars *c, uint32_t *cp)
{
    struct chars *set = &q->own;
    if (!take(q, "\\")) {
        *cp = next_char(q);
        return true;
    }
    if (take(q, "b")) { /* here it is a backspace */
        *cp = '\b';
        return true;
    }
    chars_clear(set);
    *cp = escape(q, set);
    for (uint32_t i = 0; i < set->n; i++)
        chars_add(c, set->at[i].first, set->at[i].last);
    c->overflow |= set->overflow;
    return !set->n;
}

/* Behind '['. */
static term class(struct parser *q)
{
    struct chars *c = &q->class;
    chars_clear(c);
    bool inverted = take(q, "^"), first = true;
    for (; more(q) && (first || peek(q) != ']'); first = false) {
        uint32_t from, to;
        if (q->text[q->at] == '[' && q->n - q->at > 1 && q->text[q->at + 1] == ':')
            return fail(q, "a named class");
        if (take(q, "&&"))
            return fail(q, "an intersection of classes");
        if (!class_item(q, c, &from))
            continue;
        to = from;
        if (q->n - q->at > 1 && peek(q) == '-' && q->text[q->at + 1] != ']') {
            q->at++;
            if (!class_item(q, c, &to))
                return fail(q, "a range that ends in a set");
        }
        if (to < from)
            return fail(q, "a range that ends before it begins");
        chars_add(c, from, to);
    }
    if (!take(q, "]"))
        return fail(q, "a class without end");
    if (inverted)
        chars_invert(c);
    if (c->overflow)
        return fail(q, "too many ranges of characters");
    return chars_term(q->p, c, q->how);
}

/* ---------------------------------------------------------------- sequences */

static term alternatives(struct parser *q, bool top);

/* Behind '('. */
static term group(struct parser *q)
{
    if (take(q, "?")) {
        bool named = !take(q, ":");
        if (named && (take(q, "P<") || take(q, "<")) && peek(q) != '=' && peek(q) != '!') {
            while (more(q) && !take(q, ">"))
                q->at++;
        } else if (named) {
            return fail(q, "look-around or inline flags");
        }
    }
    if (++q->depth > MAX_DEPTH)
        return fail(q, "groups nested too deeply");
    term t = alternatives(q, false);
    q->depth--;
    return take(q, ")") ? t : fail(q, "a group without end");
}

static term one_char(struct parser *q, uint32_t cp)
{
    chars_clear(&q->set);
    chars_add(&q->set, cp, cp);
    return chars_term(q->p, &q->set, q->how);
}

static term dot(struct parser *q)
{
    chars_clear(&q->set);
    chars_add(&q->set, '\n', '\n');
    chars_add(&q->set, '\r', '\r');
    chars_invert(&q->set);
    return chars_term(q->p, &q->set, q->how);
}

static term atom(struct parser *q)
{
    switch (peek(q)) {
    case '(':
        q->at++;
        return group(q);
    case '[':
        q->at++;
        return class(q);
    case '.':
        q->at++;
        return dot(q);
    case '\\': {
        q->at++;
        chars_clear(&q->set);
        uint32_t cp = escape(q, &q->set);
        return q->set.n ? chars_term(q->p, &q->set, q->how) : one_char(q, cp);
    }
    case '*':
    case '+':
    case '?':
        return fail(q, "a quantifier without anything before it");
    case '^':
    case '$':
        return fail(q, "an anchor that is not at an end of the pattern");
    default:
        return one_char(q, next_char(q));
    }
}

static bool number(struct parser *q, uint32_t *v)
{
    size_t from = q->at;
    for (*v = 0; peek(q) >= '0' && peek(q) <= '9'; q->at++) {
        *v = *v * 10 + (uint32_t)(peek(q) - '0');
        if (*v > PATTERN_MAX_COUNT) {
            fail(q, "a count above 100000");
            return false;
        }
    }
    return q->at > from;
}

/* {m}, {m,}, {,n}, {m,n}; anything else in braces stands for itself. */
static bool counts(struct parser *q, uint32_t *lo, uint32_t *hi)
{
    size_t from = q->at;
    q->at++;
    bool some = number(q, lo);
    *hi = *lo;
    if (take(q, ",")) {
        bool end = number(q, hi);
        some |= end;
        if (!end)
            *hi = TERM_UNBOUNDED;
    }
    if (q->failed || (some && take(q, "}")))
        return true;
    q->at = from;
    return false;
}

static term quantified(struct parser *q, term t)
{
    for (;;) {
        uint32_t lo = 0, hi = TERM_UNBOUNDED;
        if (peek(q) == '{' && q->at < q->n) {
            if (!counts(q, &lo, &hi))
                return t;
            if (lo > hi)
                return fail(q, "a count that ends before it begins");
        } else if (take(q, "+")) {
            lo = 1;
        } else if (take(q, "?")) {
            hi = 1;
        } else if (!take(q, "*")) {
            return t;
        }
        take(q, "?"); /* lazy: the same texts */
        if (peek(q) == '+')
            return fail(q, "a possessive quantifier");
        t = term_repeat(q->p, t, lo, hi);
    }
}

struct terms {
    term *v;
    size_t n, cap;
};

/* False: no memory; the list is gone, and the parser has failed. */
static bool terms_add(struct parser *q, struct terms *l, term t)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 16;
        term *grown = realloc(l->v, cap * sizeof(*grown));
        if (!grown) {
            free(l->v);
            return fail(q, "no memory"), false;
        }
        l->v = grown;
        l->cap = cap;
    }
    l->v[l->n++] = t;
    return true;
}

static term sequence(struct parser *q, bool top)
{
    struct terms part = {0};
    term t = TERM_EMPTY;
    bool begins = top && (take(q, "^") || take(q, "\\A")), ends = false;
    while (more(q) && peek(q) != '|' && peek(q) != ')' && !ends) {
        if (top && (take(q, "$") || take(q, "\\Z") || take(q, "\\z"))) {
            ends = true;
            break;
        }
        if (!terms_add(q, &part, quantified(q, atom(q))))
            return TERM_NONE;
    }
    if (ends && more(q) && peek(q) != '|' && peek(q) != ')')
        fail(q, "an anchor that is not at an end of the pattern");
    term any = top && q->reach == PATTERN_SEARCH
                   ? term_repeat(q->p, chars_any_term(q->p, q->how), 0, TERM_UNBOUNDED)
                   : TERM_EMPTY;
    if (!ends)
        t = any;
    while (part.n--)
        t = term_cat(q->p, part.v[part.n], t);
    free(part.v);
    return begins ? t : term_cat(q->p, any, t);
}

static term alternatives(struct parser *q, bool top)
{
    struct terms of = {0};
    term t = sequence(q, top);
    if (peek(q) != '|')
        return t;
    do {
        if (!terms_add(q, &of, t))
            return TERM_NONE;
    } while (take(q, "|") && (t = sequence(q, top), true));
    t = term_alt_n(q->p, of.v, of.n);
    free(of.v);
    return t;
}

term pattern_term(struct term_pool *p, const char *text, size_t n, enum pattern_reach reach,
                  enum spelling how, struct err *e)
{
    struct parser q = {.p = p, .text = text, .n = n, .how = how, .reach = reach, .e = e};
    if (n > PATTERN_MAX_BYTES) {
        err_set(e, ERR_VALIDATION, "pattern: longer than %d bytes", PATTERN_MAX_BYTES);
        return TERM_NONE;
    }
    if (!utf8_valid(text, n))
        return fail(&q, "invalid UTF-8");
    term t = alternatives(&q, true);
    if (!q.failed && more(&q))
        fail(&q, "a closing parenthesis that closes nothing");
    if (!q.failed && term_spent(p))
        fail(&q, "too complex");
    if (!q.failed && term_full(p))
        fail(&q, "a pattern that needs too much memory");
    if (!q.failed && t == TERM_NONE)
        fail(&q, "a pattern that no text can match");
    return q.failed ? TERM_NONE : t;
}
