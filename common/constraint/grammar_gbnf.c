/* grammar_gbnf.c - recursive descent parser of llama.cpp's notation. */
#include "common/buf.h"
#include "common/constraint/grammar_impl.h"
#include "common/utf8.h"
#include <string.h>

/* Skips blanks and comments, and line breaks inside a rule. */
static void space(struct grammar *g, bool lines)
{
    while (grammar_more(g)) {
        char c = grammar_peek(g);
        if (c == '#')
            while (grammar_more(g) && grammar_peek(g) != '\n' && grammar_peek(g) != '\r')
                g->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
            g->at++;
        else
            return;
    }
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t name(struct grammar *g)
{
    size_t from = g->at;
    while (name_char(grammar_peek(g)))
        g->at++;
    return g->at - from;
}

static uint32_t next_char(struct grammar *g)
{
    size_t len = 1;
    if (grammar_take(g, "\\"))
        return grammar_escape(g);
    uint32_t cp = utf8_decode(g->text + g->at, g->n - g->at, &len);
    g->at += len;
    return cp;
}

/* After the quote. */
static gnode string(struct grammar *g)
{
    struct buf b = BUF_INIT;
    while (grammar_more(g) && grammar_peek(g) != '"') {
        char utf8[4];
        buf_add(&b, utf8, utf8_encode(next_char(g), utf8));
    }
    if (!grammar_take(g, "\""))
        grammar_fail(g, "a string without end", "", 0);
    if (b.oom)
        term_no_memory(g->p);
    gnode n = g->failed || b.oom ? grammar_fail(g, "no memory", "", 0)
                                 : grammar_of_term(g, term_bytes_of(g->p, b.p ? b.p : "", b.len));
    buf_free(&b);
    return n;
}

/* After '['. */
static gnode class(struct grammar *g)
{
    struct chars *c = &g->set;
    chars_clear(c);
    bool inverted = grammar_take(g, "^");
    while (grammar_more(g) && grammar_peek(g) != ']') {
        uint32_t first = next_char(g), last = first;
        if (g->n - g->at > 1 && grammar_peek(g) == '-' && g->text[g->at + 1] != ']') {
            g->at++;
            last = next_char(g);
        }
        if (last < first)
            return grammar_fail(g, "a range that ends before it begins", "", 0);
        chars_add(c, first, last);
    }
    if (!grammar_take(g, "]"))
        return grammar_fail(g, "a class without end", "", 0);
    if (inverted)
        chars_invert(c);
    if (c->overflow)
        return grammar_fail(g, "too many ranges of characters", "", 0);
    return grammar_of_term(g, chars_term(g->p, c, g->how));
}

static gnode alternatives(struct grammar *g, bool nested);

static gnode atom(struct grammar *g)
{
    const char *at = g->text + g->at;
    if (grammar_take(g, "\""))
        return string(g);
    if (grammar_take(g, "["))
        return class(g);
    if (grammar_take(g, "."))
        return grammar_of_term(g, chars_any_term(g->p, g->how));
    if (grammar_take(g, "(")) {
        if (++g->depth > GRAMMAR_MAX_DEPTH)
            return grammar_fail(g, "groups nested too deeply", "", 0);
        gnode n = alternatives(g, true);
        g->depth--;
        return grammar_take(g, ")") ? n : grammar_fail(g, "a group without end", "", 0);
    }
    if (grammar_peek(g) == '<' || grammar_peek(g) == '!')
        return grammar_fail(g, "a token by its name or number is not supported", "", 0);
    size_t n = name(g);
    return n ? grammar_ref(g, grammar_rule(g, at, n))
             : grammar_fail(g, "an unexpected character", at, g->at < g->n);
}

/* After '{'. */
static bool counts(struct grammar *g, uint32_t *lo, uint32_t *hi)
{
    space(g, true);
    bool some = grammar_number(g, lo);
    *hi = *lo;
    space(g, true);
    if (grammar_take(g, ",")) {
        space(g, true);
        if (!grammar_number(g, hi))
            *hi = TERM_UNBOUNDED;
        some |= *hi != TERM_UNBOUNDED;
        space(g, true);
    }
    if (some && *lo <= *hi && grammar_take(g, "}"))
        return true;
    grammar_fail(g, "bad counts", "", 0);
    return false;
}

static gnode quantified(struct grammar *g, gnode n)
{
    for (int i = 0; grammar_more(g); i++) {
        uint32_t lo = 0, hi = TERM_UNBOUNDED;
        if (i > GRAMMAR_MAX_DEPTH)
            return grammar_fail(g, "repetitions nested too deeply", "", 0);
        if (grammar_take(g, "{")) {
            if (!counts(g, &lo, &hi))
                return 0;
        } else if (!grammar_quantifier(g, &lo, &hi)) {
            return n;
        }
        n = grammar_repeat(g, n, lo, hi);
    }
    return n;
}

static gnode alternatives(struct grammar *g, bool nested)
{
    gnode all = grammar_list(g, G_ALT), last_all = 0;
    do {
        gnode list = grammar_list(g, G_CAT), last = 0;
        space(g, true); /* a rule's body may begin on the next line */
        while (grammar_more(g) && !strchr("|)\r\n", grammar_peek(g))) {
            grammar_append(g, list, &last, quantified(g, atom(g)));
            space(g, nested);
        }
        grammar_append(g, all, &last_all, list);
        space(g, nested);
    } while (grammar_take(g, "|"));
    return all;
}

int grammar_parse_gbnf(struct grammar *g)
{
    for (space(g, true); grammar_more(g); space(g, true)) {
        const char *at = g->text + g->at;
        size_t n = name(g);
        if (!n)
            return grammar_fail(g, "no name of a rule", "", 0), -1;
        uint32_t rule = grammar_rule(g, at, n);
        space(g, false);
        if (!grammar_take(g, "::="))
            return grammar_fail(g, "no `::=` behind", at, n), -1;
        gnode body = alternatives(g, false);
        if (g->failed)
            return -1;
        if (grammar_peek(g) == ')')
            return grammar_fail(g, "an unmatched closing parenthesis", "", 0), -1;
        g->rule[rule].body = body; /* the last definition counts */
    }
    for (uint32_t i = 0; i < g->n_rules; i++)
        if (g->rule[i].n_name == 4 && !memcmp(g->rule[i].name, "root", 4))
            return (int)i;
    grammar_fail(g, "undefined rule", "root", 4);
    return -1;
}
