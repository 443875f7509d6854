/* pattern.c - recursive descent parser of regular expressions; each function returns the term it
 * parsed. */
#include "common/constraint/pattern.h"
#include "common/constraint/pattern_assert.h"
#include "common/constraint/pattern_chars.h"
#include "common/tokenizer/unicode.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

/* MAX_DEPTH: of groups, and of the quantifiers of an atom. MAX_TREES: of trees, of which each takes
 * 250 bytes of a thread's stack where they are compiled. */
enum { MAX_DEPTH = 200, MAX_TREES = 1000 };

struct pattern_parser {
    struct term_pool *p;
    const char *text;
    size_t n, at;
    enum spelling how;
    enum pattern_reach reach;
    bool fold, unicode, dot_all; /* the current flags i, u and s */
    struct pattern_tree *trees;  /* all allocated trees */
    int depth;
    bool failed;
    struct err *e;
    /* too large for the stack of a recursive parser: of an atom, a class, an escape in a class */
    struct chars set, class, own;
};

static term fail(struct pattern_parser *q, const char *what)
{
    if (!q->failed)
        err_set(q->e, ERR_VALIDATION, "pattern: %s at byte %zu", what, q->at);
    q->failed = true;
    q->at = q->n;
    return TERM_NONE;
}

static term no_memory(struct pattern_parser *q)
{
    term_no_memory(q->p);
    return fail(q, "no memory");
}

static bool more(const struct pattern_parser *q) { return q->at < q->n; }
static char peek(const struct pattern_parser *q) { return q->at < q->n ? q->text[q->at] : '\0'; }

static bool take(struct pattern_parser *q, const char *s)
{
    size_t n = strlen(s);
    if (q->n - q->at < n || memcmp(q->text + q->at, s, n) != 0)
        return false;
    q->at += n;
    return true;
}

static uint32_t next_char(struct pattern_parser *q)
{
    size_t len = 1;
    uint32_t cp = utf8_decode(q->text + q->at, q->n - q->at, &len);
    q->at += len;
    return cp;
}

/* ---------------------------------------------------------------- escapes */

static void add_category(struct pattern_parser *q, struct chars *c, uint32_t set)
{
    pattern_add_category(q->p, c, set);
    if (c->overflow || !c->n)
        fail(q, "too many ranges of characters");
    if (term_spent(q->p))
        fail(q, "too complex");
}

/* After \p or \P: {L}, {Lu}, {Letter}, {gc=L}, or one letter. */
static void property(struct pattern_parser *q, struct chars *c)
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
    uint32_t set = from + n <= q->n && n ? pattern_category(q->text + from, n) : 0;
    if (!set)
        fail(q, "a \\p with an unknown general category");
    else
        add_category(q, c, set);
}

/* `digits` hexadecimal digits, or any number of them in braces. */
static uint32_t hex(struct pattern_parser *q, int digits)
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

/* After the backslash: one character, or a set in *set (then the result is 0). */
static uint32_t escape(struct pattern_parser *q, struct chars *set)
{
    static const char plain[] = "tnrfv0ae", value[] = "\t\n\r\f\v\0\a\x1b",
                      letters[] = "abcdefghijklmnopqrstuvwxyz";
    if (!more(q))
        return (uint32_t)fail(q, "a backslash without anything behind it");
    char c = peek(q);
    const char *named = c ? strchr(plain, c) : NULL;
    if (strchr("dwsDWSpP", c)) {
        q->at++;
        if (c == 'p' || c == 'P')
            property(q, set);
        else
            pattern_add_shorthand(q->p, set, (char)(c | 0x20), q->unicode);
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
    if (c == 'c' && q->at + 1 < q->n && strchr(letters, q->text[q->at + 1] | 0x20)) {
        q->at += 2; /* a control character by its letter */
        return (uint32_t)q->text[q->at - 1] & 31;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9'))
        return (uint32_t)fail(q, c >= '1' && c <= '9' ? "a back reference" : "an unknown escape");
    return next_char(q);
}

/* ---------------------------------------------------------------- classes */

/* One end of a range, or a set. */
static bool class_item(struct pattern_parser *q, struct chars *c, uint32_t *cp)
{
    struct chars *set = &q->own;
    if (!take(q, "\\")) {
        *cp = next_char(q);
        return true;
    }
    if (take(q, "b")) { /* in a class this is a backspace */
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

/* After '['. */
static term class(struct pattern_parser *q)
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
    if (q->fold)
        pattern_fold(q->p, c);
    if (inverted)
        chars_invert(c);
    if (c->overflow)
        return fail(q, "too many ranges of characters");
    return chars_term(q->p, c, q->how);
}

/* ---------------------------------------------------------------- parts */

static struct part plain(term t) { return (struct part){.t = t}; }

/* Takes ownership of `part`. */
static struct part tree(struct pattern_parser *q, enum pattern_kind kind, struct part *part,
                        size_t n)
{
    struct pattern_tree *x = q->failed ? NULL : calloc(1, sizeof(*x));
    if (!x) {
        free(part);
        return plain(q->failed ? TERM_NONE : no_memory(q));
    }
    *x = (struct pattern_tree){.kind = kind, .part = part, .n = n, .depth = 1, .older = q->trees};
    q->trees = x;
    for (size_t i = 0; i < n; i++)
        if (part[i].tree && part[i].tree->depth >= x->depth)
            x->depth = part[i].tree->depth + 1;
    if (x->depth > MAX_TREES)
        return plain(fail(q, "repetitions nested too deeply"));
    return (struct part){.tree = x};
}

static void free_trees(struct pattern_parser *q)
{
    for (struct pattern_tree *older; q->trees; q->trees = older) {
        older = q->trees->older;
        free(q->trees->part);
        free(q->trees);
    }
}

static struct part tree_of(struct pattern_parser *q, enum pattern_kind kind, struct part inner)
{
    struct part *one = malloc(sizeof(*one));
    if (!one)
        return plain(no_memory(q));
    *one = inner;
    return tree(q, kind, one, 1);
}

/* ---------------------------------------------------------------- sequences */

static struct part alternatives(struct pattern_parser *q);

/* After "(?": flags, with or without a minus. 1: for a group; 2: to the end of the enclosing group;
 * 0: no flags. */
static int flags(struct pattern_parser *q)
{
    size_t at = q->at;
    bool on = true, fold = q->fold, unicode = q->unicode, dot_all = q->dot_all;
    for (; more(q) && strchr("isua-", peek(q)) && peek(q); q->at++) {
        char c = peek(q);
        on = c == '-' ? false : on;
        fold = c == 'i' ? on : fold;
        dot_all = c == 's' ? on : dot_all;
        unicode = c == 'u' ? on : c == 'a' ? !on : unicode;
    }
    char end = peek(q);
    if (q->at == at || (end != ':' && end != ')')) {
        q->at = at;
        return 0;
    }
    q->at++;
    q->fold = fold;
    q->unicode = unicode;
    q->dot_all = dot_all;
    return end == ':' ? 1 : 2;
}

/* After '(': the kind of group; -1: only flags. */
static int group_kind(struct pattern_parser *q)
{
    if (!take(q, "?") || take(q, ":"))
        return P_TERM;
    if (take(q, "="))
        return P_AHEAD;
    if (take(q, "!"))
        return P_NOT_AHEAD;
    if ((take(q, "P<") || take(q, "<")) && peek(q) != '=' && peek(q) != '!') {
        while (more(q) && !take(q, ">"))
            q->at++;
        return P_TERM;
    }
    int how = flags(q);
    if (!how)
        fail(q, "look-behind, or an unknown kind of group");
    return how == 2 ? -1 : P_TERM;
}

/* After '('. */
static struct part group(struct pattern_parser *q)
{
    bool fold = q->fold, unicode = q->unicode, dot_all = q->dot_all;
    int kind = group_kind(q);
    if (kind < 0)
        return plain(TERM_EMPTY);
    if (++q->depth > MAX_DEPTH)
        return plain(fail(q, "groups nested too deeply"));
    struct part inner = alternatives(q);
    q->depth--;
    q->fold = fold;
    q->unicode = unicode;
    q->dot_all = dot_all;
    if (!take(q, ")"))
        return plain(fail(q, "a group without end"));
    return kind == P_TERM ? inner : tree_of(q, (enum pattern_kind)kind, inner);
}

static term set_term(struct pattern_parser *q)
{
    if (q->fold)
        pattern_fold(q->p, &q->set);
    return chars_term(q->p, &q->set, q->how);
}

static term one_char(struct pattern_parser *q, uint32_t cp)
{
    chars_clear(&q->set);
    chars_add(&q->set, cp, cp);
    return set_term(q);
}

static term dot(struct pattern_parser *q)
{
    chars_clear(&q->set);
    if (!q->dot_all) {
        chars_add(&q->set, '\n', '\n');
        chars_add(&q->set, '\r', '\r');
    }
    chars_invert(&q->set);
    return chars_term(q->p, &q->set, q->how);
}

/* Assertions without an operand. */
static bool assertion(struct pattern_parser *q, enum pattern_kind *kind)
{
    static const struct {
        const char *text;
        enum pattern_kind kind;
    } of[] = {{"^", P_BEGIN}, {"\\A", P_BEGIN},    {"$", P_END},          {"\\Z", P_END},
              {"\\z", P_END}, {"\\b", P_BOUNDARY}, {"\\B", P_NO_BOUNDARY}};
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        if (take(q, of[i].text)) {
            *kind = of[i].kind;
            return true;
        }
    return false;
}

static struct part atom(struct pattern_parser *q)
{
    enum pattern_kind kind;
    if (assertion(q, &kind))
        return tree(q, kind, NULL, 0);
    switch (peek(q)) {
    case '(':
        q->at++;
        return group(q);
    case '[':
        q->at++;
        return plain(class(q));
    case '.':
        q->at++;
        return plain(dot(q));
    case '\\': {
        q->at++;
        chars_clear(&q->set);
        uint32_t cp = escape(q, &q->set);
        return plain(q->set.n ? set_term(q) : one_char(q, cp));
    }
    case '*':
    case '+':
    case '?':
        return plain(fail(q, "a quantifier without anything before it"));
    default:
        return plain(one_char(q, next_char(q)));
    }
}

static bool number(struct pattern_parser *q, uint32_t *v)
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

/* {m}, {m,}, {,n}, {m,n}; other text in braces is literal. */
static bool counts(struct pattern_parser *q, uint32_t *lo, uint32_t *hi)
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

static struct part repeated(struct pattern_parser *q, struct part of, uint32_t lo, uint32_t hi)
{
    if (!of.tree)
        return plain(term_repeat(q->p, of.t, lo, hi));
    struct part r = tree_of(q, P_REPEAT, of);
    if (r.tree) {
        r.tree->lo = lo;
        r.tree->hi = hi;
    }
    return r;
}

static struct part quantified(struct pattern_parser *q, struct part of)
{
    for (int i = 0;; i++) {
        uint32_t lo = 0, hi = TERM_UNBOUNDED;
        if (i > MAX_DEPTH)
            return plain(fail(q, "repetitions nested too deeply"));
        if (peek(q) == '{' && q->at < q->n) {
            if (!counts(q, &lo, &hi))
                return of;
            if (lo > hi)
                return plain(fail(q, "a count that ends before it begins"));
        } else if (take(q, "+")) {
            lo = 1;
        } else if (take(q, "?")) {
            hi = 1;
        } else if (!take(q, "*")) {
            return of;
        }
        take(q, "?"); /* lazy: same language */
        if (peek(q) == '+')
            return plain(fail(q, "a possessive quantifier"));
        of = repeated(q, of, lo, hi);
    }
}

struct parts {
    struct part *v;
    size_t n, cap;
    bool tree; /* one of them is a tree */
};

/* False: out of memory; the list is freed and the parser has failed. */
static bool parts_add(struct pattern_parser *q, struct parts *l, struct part part)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 16;
        struct part *grown = realloc(l->v, cap * sizeof(*grown));
        if (!grown) {
            free(l->v);
            return no_memory(q), false;
        }
        l->v = grown;
        l->cap = cap;
    }
    l->tree |= part.tree != NULL;
    l->v[l->n++] = part;
    return true;
}

/* Joins adjacent parts without assertions to one term. */
static void join_plain(struct pattern_parser *q, struct parts *l)
{
    size_t n = 0;
    for (size_t to = l->n; to > 0;) { /* from the right, so that terms share their tails */
        struct part part = l->v[--to];
        if (!part.tree)
            while (to > 0 && !l->v[to - 1].tree)
                part.t = term_cat(q->p, l->v[--to].t, part.t);
        l->v[l->n - ++n] = part; /* at or after the unread part */
    }
    for (size_t i = 0; i < n; i++)
        l->v[i] = l->v[l->n - n + i];
    l->n = n;
}

static struct part sequence(struct pattern_parser *q)
{
    struct parts l = {0};
    while (more(q) && peek(q) != '|' && peek(q) != ')')
        if (!parts_add(q, &l, quantified(q, atom(q))))
            return plain(TERM_NONE);
    join_plain(q, &l);
    if (l.tree)
        return tree(q, P_CAT, l.v, l.n);
    term t = l.n ? l.v[0].t : TERM_EMPTY;
    free(l.v);
    return plain(t);
}

static struct part alternatives(struct pattern_parser *q)
{
    struct parts l = {0};
    struct part part = sequence(q);
    if (peek(q) != '|')
        return part;
    do {
        if (!parts_add(q, &l, part))
            return plain(TERM_NONE);
    } while (take(q, "|") && (part = sequence(q), true));
    if (l.tree)
        return tree(q, P_ALT, l.v, l.n);
    term *of = malloc(l.n * sizeof(*of));
    for (size_t i = 0; of && i < l.n; i++)
        of[i] = l.v[i].t;
    term t = of ? term_alt_n(q->p, of, l.n) : no_memory(q);
    free(of);
    free(l.v);
    return plain(t);
}

/* Adds any text before and after a pattern for a search. */
static term whole(struct pattern_parser *q, struct part part, bool word_unicode)
{
    struct lowering l = {.p = q->p, .any = chars_any_term(q->p, q->how)};
    term any = term_repeat(q->p, l.any, 0, TERM_UNBOUNDED);
    term end = q->reach == PATTERN_SEARCH ? any : TERM_EMPTY;
    if (!part.tree)
        return term_cat(q->p, end, term_cat(q->p, part.t, end));
    chars_clear(&q->set);
    pattern_add_shorthand(q->p, &q->set, 'w', word_unicode);
    chars_tidy(&q->set);
    l.word = chars_term(q->p, &q->set, q->how);
    chars_invert(&q->set);
    l.other = chars_term(q->p, &q->set, q->how);
    struct after then = {{end, end, end}};
    /* each alternative separately, so that an anchor applies only to its own */
    bool several = part.tree->kind == P_ALT;
    term all = TERM_NONE;
    for (size_t i = 0; i < (several ? part.tree->n : 1) && !l.failed; i++) {
        struct after of = pattern_lower(&l, several ? part.tree->part[i] : part, then);
        if (q->reach == PATTERN_SEARCH)
            of = pattern_lower(&l, plain(any), of);
        all = term_alt(q->p, all, of.t[FRONT_NOTHING]);
    }
    return l.failed ? fail(q, l.failed) : all;
}

term pattern_term(struct term_pool *p, const char *text, size_t n, enum pattern_reach reach,
                  enum spelling how, struct err *e)
{
    struct pattern_parser q = {.p = p, .text = text, .n = n, .how = how, .reach = reach, .e = e};
    if (n > PATTERN_MAX_BYTES) {
        err_set(e, ERR_VALIDATION, "pattern: longer than %d bytes", PATTERN_MAX_BYTES);
        return TERM_NONE;
    }
    if (!utf8_valid(text, n))
        return fail(&q, "invalid UTF-8");
    struct part part = alternatives(&q);
    if (!q.failed && more(&q))
        fail(&q, "an unmatched closing parenthesis");
    term t = q.failed ? TERM_NONE : whole(&q, part, q.unicode);
    free_trees(&q);
    if (!q.failed && term_spent(p))
        fail(&q, "too complex");
    if (!q.failed && term_full(p))
        fail(&q, "a pattern that needs too much memory");
    if (!q.failed && t == TERM_NONE)
        fail(&q, "a pattern that no text can match");
    return q.failed ? TERM_NONE : t;
}
