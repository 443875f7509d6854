/* grammar.c - the syntax tree of a grammar, and its compilation to terms. */
#include "common/constraint/grammar_impl.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 1 << 18 };

/* ---------------------------------------------------------------- the tree */

gnode grammar_fail(struct grammar *g, const char *what, const char *name, size_t n)
{
    size_t line = 1;
    if (g->failed)
        return 0;
    for (size_t i = 0; i < g->at && i < g->n; i++)
        line += g->text[i] == '\n';
    err_set(g->e, ERR_VALIDATION, "grammar: %s%s%.*s%s on line %zu", what, n ? " `" : "",
            (int)(n < 60 ? n : 60), n ? name : "", n ? "`" : "", line);
    g->failed = true;
    return 0;
}

bool grammar_take(struct grammar *g, const char *s)
{
    size_t n = strlen(s);
    if (g->n - g->at < n || memcmp(g->text + g->at, s, n) != 0)
        return false;
    g->at += n;
    return true;
}

bool grammar_quantifier(struct grammar *g, uint32_t *lo, uint32_t *hi)
{
    if (grammar_take(g, "+"))
        *lo = 1;
    else if (grammar_take(g, "?"))
        *hi = 1;
    else
        return grammar_take(g, "*");
    return true;
}

uint32_t grammar_rule(struct grammar *g, const char *name, size_t n)
{
    uint32_t i = 0;
    while (i < g->n_rules && (g->rule[i].n_name != n || memcmp(g->rule[i].name, name, n) != 0))
        i++;
    term_work(g->p, i / 8 + 1);
    if (i == GRAMMAR_MAX_RULES)
        return grammar_fail(g, "too many rules", "", 0);
    if (term_spent(g->p))
        return grammar_fail(g, "too complex", "", 0);
    if (i == g->n_rules)
        g->rule[g->n_rules++] = (struct grammar_rule){.name = name, .n_name = n};
    return i;
}

bool grammar_number(struct grammar *g, uint32_t *v)
{
    size_t from = g->at;
    for (*v = 0; grammar_peek(g) >= '0' && grammar_peek(g) <= '9'; g->at++) {
        *v = *v * 10 + (uint32_t)(grammar_peek(g) - '0');
        if (*v > PATTERN_MAX_COUNT) {
            grammar_fail(g, "a count above 100000", "", 0);
            return false;
        }
    }
    return g->at > from;
}

static gnode new_node(struct grammar *g, struct grammar_node n)
{
    if (g->n_nodes == g->cap_nodes) {
        uint32_t cap = g->cap_nodes ? g->cap_nodes * 2 : 256;
        struct grammar_node *more = cap <= MAX_NODES ? realloc(g->node, cap * sizeof(*more)) : NULL;
        if (!more)
            return grammar_fail(g, "too large", "", 0);
        g->node = more;
        g->cap_nodes = cap;
        g->n_nodes += !g->n_nodes; /* index 0 is reserved */
    }
    g->node[g->n_nodes] = n;
    return g->n_nodes++;
}

gnode grammar_of_term(struct grammar *g, term t)
{
    return new_node(g, (struct grammar_node){.kind = G_TERM, .t = t});
}

gnode grammar_ref(struct grammar *g, uint32_t rule)
{
    return new_node(g, (struct grammar_node){.kind = G_REF, .rule = rule});
}

gnode grammar_list(struct grammar *g, enum gnode_kind kind)
{
    return new_node(g, (struct grammar_node){.kind = kind});
}

void grammar_append(struct grammar *g, gnode list, gnode *last, gnode kid)
{
    if (!list || !kid || g->failed)
        return;
    if (*last)
        g->node[*last].next = kid;
    else
        g->node[list].kid = kid;
    *last = kid;
}

gnode grammar_repeat(struct grammar *g, gnode of, uint32_t lo, uint32_t hi)
{
    return new_node(g, (struct grammar_node){.kind = G_REPEAT, .kid = of, .lo = lo, .hi = hi});
}

gnode grammar_until(struct grammar *g, gnode of, term suffix)
{
    return new_node(g, (struct grammar_node){.kind = G_UNTIL, .kid = of, .t = suffix});
}

/* ---------------------------------------------------------------- characters */

static uint32_t hex(struct grammar *g, int digits)
{
    uint32_t v = 0;
    for (int i = 0; i < digits; i++, g->at++) {
        char c = grammar_peek(g);
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0 || v > CHAR_LAST)
            return grammar_fail(g, "a bad hexadecimal escape", "", 0);
        v = v * 16 + (uint32_t)d;
    }
    return v > CHAR_LAST ? grammar_fail(g, "a bad hexadecimal escape", "", 0) : v;
}

uint32_t grammar_escape(struct grammar *g)
{
    static const char named[] = "nrtfvba0", value[] = "\n\r\t\f\v\b\a";
    size_t len = 1;
    char c = grammar_peek(g);
    if (!grammar_more(g))
        return grammar_fail(g, "a backslash without anything behind it", "", 0);
    const char *at = c ? strchr(named, c) : NULL;
    if (c == 'x' || c == 'u' || c == 'U') {
        g->at++;
        return hex(g, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    }
    if (at) {
        g->at++;
        return (uint8_t)value[at - named];
    }
    uint32_t cp = utf8_decode(g->text + g->at, g->n - g->at, &len);
    g->at += len;
    return cp;
}

term grammar_char(struct grammar *g, uint32_t first, uint32_t last)
{
    chars_clear(&g->set);
    chars_add(&g->set, first, last);
    return chars_term(g->p, &g->set, g->how);
}

/* ---------------------------------------------------------------- left recursion */

static bool nullable(const struct grammar *g, gnode n)
{
    const struct grammar_node *x = &g->node[n];
    switch (x->kind) {
    case G_TERM:
        return term_nullable(g->p, x->t);
    case G_REF:
        return g->rule[x->rule].nullable;
    case G_CAT:
        for (gnode k = x->kid; k; k = g->node[k].next)
            if (!nullable(g, k))
                return false;
        return true;
    case G_ALT:
        for (gnode k = x->kid; k; k = g->node[k].next)
            if (nullable(g, k))
                return true;
        return false;
    case G_REPEAT:
        return !x->lo || nullable(g, x->kid);
    case G_UNTIL:
        return false;
    }
    return false;
}

static bool find_nullable(struct grammar *g)
{
    for (bool more = true; more;) {
        more = false;
        term_work(g->p, g->n_nodes / 4);
        for (uint32_t i = 0; i < g->n_rules; i++)
            if (!g->rule[i].nullable && nullable(g, g->rule[i].body))
                g->rule[i].nullable = more = true;
        if (term_spent(g->p))
            return grammar_fail(g, "too complex", "", 0), false;
    }
    return true;
}

/* Is `n` a reference to the rule, or a sequence that begins with one? *rest: the remainder. */
static bool begins_with(const struct grammar *g, gnode n, uint32_t rule, gnode *rest)
{
    const struct grammar_node *x = &g->node[n];
    *rest = 0;
    if (x->kind == G_CAT && x->kid) {
        *rest = g->node[x->kid].next;
        x = &g->node[x->kid];
    }
    return x->kind == G_REF && x->rule == rule;
}

/* a = a x | b becomes b x*. Bodies are G_ALT of G_CAT. */
static void unfold_left(struct grammar *g, uint32_t rule)
{
    gnode body = g->rule[rule].body, last = 0, last_tail = 0, rest, next;
    bool any = false;
    for (gnode k = g->node[body].kid; k; k = g->node[k].next)
        any |= begins_with(g, k, rule, &rest);
    if (!any)
        return;
    gnode heads = grammar_list(g, G_ALT), tails = grammar_list(g, G_ALT);
    for (gnode k = g->node[body].kid; k && !g->failed; k = next) {
        next = g->node[k].next;
        if (!begins_with(g, k, rule, &rest)) {
            g->node[k].next = 0;
            grammar_append(g, heads, &last, k);
        } else if (rest) { /* a = a is dropped */
            gnode tail = grammar_list(g, G_CAT);
            if (tail)
                g->node[tail].kid = rest;
            grammar_append(g, tails, &last_tail, tail);
        }
    }
    gnode cat = grammar_list(g, G_CAT), at = 0, all = grammar_list(g, G_ALT), only = 0;
    grammar_append(g, cat, &at, heads);
    grammar_append(g, cat, &at, grammar_repeat(g, tails, 0, TERM_UNBOUNDED));
    grammar_append(g, all, &only, cat);
    if (!g->failed)
        g->rule[rule].body = all;
}

static bool enter(struct grammar *g, uint32_t rule);

/* Visits rules that may be called before any byte. False: a cycle. */
static bool first_calls(struct grammar *g, gnode n)
{
    struct grammar_node x = g->node[n];
    switch (x.kind) {
    case G_TERM:
        return true;
    case G_REF:
        return enter(g, x.rule);
    case G_CAT:
        for (gnode k = x.kid; k; k = g->node[k].next) {
            if (!first_calls(g, k))
                return false;
            if (!nullable(g, k))
                return true;
        }
        return true;
    case G_ALT:
        for (gnode k = x.kid; k; k = g->node[k].next)
            if (!first_calls(g, k))
                return false;
        return true;
    case G_REPEAT:
    case G_UNTIL:
        return first_calls(g, x.kid);
    }
    return true;
}

static bool enter(struct grammar *g, uint32_t rule)
{
    enum { OPEN = 1, DONE };
    struct grammar_rule *r = &g->rule[rule];
    if (r->visited)
        return r->visited == DONE ||
               (grammar_fail(g, "left recursion of", r->name, r->n_name), false);
    if (++g->depth > 4 * GRAMMAR_MAX_DEPTH)
        return grammar_fail(g, "rules nested too deeply", "", 0), false;
    r->visited = OPEN;
    bool ok = first_calls(g, r->body);
    r->visited = DONE;
    g->depth--;
    return ok;
}

/* ---------------------------------------------------------------- terms */

/* `t`, then `suffix`, of which no proper prefix ends with `suffix`. */
static term until(struct term_pool *p, term t, term suffix)
{
    const term more = term_and(p, TERM_ALL, term_not(p, TERM_EMPTY));
    const term early = term_cat(p, TERM_ALL, term_cat(p, suffix, more));
    return term_and(p, term_cat(p, t, suffix), term_not(p, early));
}

static term make(struct grammar *g, gnode n)
{
    struct grammar_node x = g->node[n];
    size_t count = 0, i = 0;
    if (x.kind == G_TERM)
        return x.t;
    if (x.kind == G_REF)
        return g->rule[x.rule].t;
    if (x.kind == G_REPEAT)
        return term_repeat(g->p, make(g, x.kid), x.lo, x.hi);
    if (x.kind == G_UNTIL)
        return until(g->p, make(g, x.kid), x.t);
    for (gnode k = x.kid; k; k = g->node[k].next)
        count++;
    term *part = calloc(count + 1, sizeof(*part)), t;
    if (!part)
        term_no_memory(g->p);
    if (!part)
        return grammar_fail(g, "no memory", "", 0), TERM_NONE;
    for (gnode k = x.kid; k; k = g->node[k].next)
        part[i++] = make(g, k);
    if (x.kind == G_ALT) {
        t = count ? term_alt_n(g->p, part, count) : TERM_NONE;
    } else {
        for (t = TERM_EMPTY; count--;)
            t = term_cat(g->p, part[count], t);
    }
    free(part);
    return t;
}

static term compile(struct grammar *g, uint32_t root)
{
    for (uint32_t i = 0; i < g->n_rules && !g->failed; i++)
        if (!g->rule[i].body)
            grammar_fail(g, "undefined rule", g->rule[i].name, g->rule[i].n_name);
    for (uint32_t i = 0; i < g->n_rules && !g->failed; i++)
        unfold_left(g, i);
    if (g->failed || !find_nullable(g))
        return TERM_NONE;
    for (uint32_t i = 0; i < g->n_rules; i++)
        if (!enter(g, i))
            return TERM_NONE;
    for (uint32_t i = 0; i < g->n_rules; i++)
        g->rule[i].t = term_rule(g->p, g->rule[i].nullable);
    for (uint32_t i = 0; i < g->n_rules && !g->failed && !term_full(g->p); i++)
        term_define(g->p, g->rule[i].t, make(g, g->rule[i].body));
    term t = g->rule[root].t;
    if (g->ignore) /* Lark: ignored text may also follow the last terminal */
        t = term_cat(g->p, t, make(g, g->ignore));
    if (term_full(g->p))
        grammar_fail(g, "it needs too much memory", "", 0);
    if (term_spent(g->p))
        grammar_fail(g, "too complex", "", 0);
    return g->failed ? TERM_NONE : t;
}

term grammar_part(struct term_pool *p, const char *text, size_t n, enum grammar_dialect dialect,
                  enum spelling how, struct err *e)
{
    struct grammar g = {.p = p, .text = text, .n = n, .e = e, .how = how};
    if (n > GRAMMAR_MAX_BYTES)
        return err_set(e, ERR_VALIDATION, "grammar: longer than %d bytes", GRAMMAR_MAX_BYTES),
               TERM_NONE;
    if (!utf8_valid(text, n))
        return err_set(e, ERR_VALIDATION, "grammar: invalid UTF-8"), TERM_NONE;
    g.rule = calloc(GRAMMAR_MAX_RULES, sizeof(*g.rule));
    if (!g.rule)
        return err_nomem(e), TERM_NONE;
    int root = dialect == GRAMMAR_GBNF ? grammar_parse_gbnf(&g) : grammar_parse_lark(&g);
    term t = g.failed || root < 0 ? TERM_NONE : compile(&g, (uint32_t)root);
    free(g.node);
    free(g.rule);
    return t;
}

term grammar_term(struct term_pool *p, const char *text, size_t n, enum grammar_dialect dialect,
                  struct err *e)
{
    const term open = grammar_part(p, text, n, dialect, SPELL_PLAIN, e);
    const term t = open == TERM_NONE ? TERM_NONE : term_close(p, open);
    if (open == TERM_NONE || t != TERM_NONE)
        return t;
    const char *why = term_full(p)    ? "it needs too much memory"
                      : term_spent(p) ? "too complex"
                                      : "no text satisfies it";
    return err_set(e, ERR_VALIDATION, "grammar: %s", why), TERM_NONE;
}

enum grammar_dialect grammar_guess(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t from = i;
        while (i < n &&
               ((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z') ||
                (text[i] >= '0' && text[i] <= '9') || strchr("-_ \t", text[i])) &&
               text[i])
            i++;
        if (i > from && n - i >= 3 && !memcmp(text + i, "::=", 3))
            return GRAMMAR_GBNF;
        const char *end = memchr(text + i, '\n', n - i);
        i = end ? (size_t)(end - text) + 1 : n;
    }
    return GRAMMAR_LARK;
}
