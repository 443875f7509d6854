/* pattern_assert.c - compiles from right to left: each part with its continuation. */
#include "common/constraint/pattern_assert.h"

enum { MAX_UNROLLED = 64 };

static term any_text(struct lowering *l) { return term_repeat(l->p, l->any, 0, TERM_UNBOUNDED); }

/* The texts of t that end in `last`. */
static term ending_in(struct lowering *l, term t, term last)
{
    return term_and(l->p, t, term_cat(l->p, any_text(l), last));
}

static bool same(const struct after *a) { return a->t[0] == a->t[1] && a->t[1] == a->t[2]; }

static struct after of_term(struct lowering *l, term t, struct after then)
{
    struct term_pool *p = l->p;
    struct after out;
    bool empty = term_nullable(p, t);
    term behind;
    if (same(&then)) {
        term all = term_cat(p, t, then.t[0]);
        return (struct after){{all, all, all}};
    }
    if (then.t[FRONT_WORD] == then.t[FRONT_OTHER]) {
        term some = empty ? term_and(p, t, term_not(p, TERM_EMPTY)) : t;
        behind = term_cat(p, some, then.t[FRONT_WORD]);
    } else {
        behind = term_alt(p, term_cat(p, ending_in(l, t, l->word), then.t[FRONT_WORD]),
                          term_cat(p, ending_in(l, t, l->other), then.t[FRONT_OTHER]));
    }
    for (int i = 0; i < 3; i++)
        out.t[i] = empty ? term_alt(p, behind, then.t[i]) : behind;
    return out;
}

static bool may_be_empty(struct lowering *l, struct part part)
{
    const struct pattern_tree *x = part.tree;
    if (!x)
        return term_nullable(l->p, part.t);
    if (x->kind == P_CAT) {
        for (size_t i = 0; i < x->n; i++)
            if (!may_be_empty(l, x->part[i]))
                return false;
        return true;
    }
    if (x->kind == P_ALT) {
        for (size_t i = 0; i < x->n; i++)
            if (may_be_empty(l, x->part[i]))
                return true;
        return false;
    }
    return x->kind != P_REPEAT || !x->lo || may_be_empty(l, x->part[0]);
}

static struct after either(struct lowering *l, struct after a, struct after b)
{
    for (int i = 0; i < 3; i++)
        a.t[i] = term_alt(l->p, a.t[i], b.t[i]);
    return a;
}

/* Unbounded repetition: a recursive rule for each preceding character kind. */
static struct after star(struct lowering *l, struct part part, struct after then)
{
    struct after rule;
    if (may_be_empty(l, part)) {
        l->failed = "an endless repetition of what may be empty and looks around";
        return then;
    }
    for (int i = 0; i < 3; i++)
        rule.t[i] = term_rule(l->p, term_nullable(l->p, then.t[i]));
    struct after body = either(l, then, pattern_lower(l, part, rule));
    for (int i = 0; i < 3 && !term_full(l->p); i++)
        term_define(l->p, rule.t[i], body.t[i]);
    return rule;
}

static struct after repeat(struct lowering *l, const struct pattern_tree *x, struct after then)
{
    bool endless = x->hi == TERM_UNBOUNDED;
    uint32_t most = endless ? x->lo : x->hi;
    if (most > MAX_UNROLLED) {
        l->failed = "more than 64 repetitions of what looks around";
        return then;
    }
    struct after out = endless ? star(l, x->part[0], then) : then;
    for (uint32_t i = most; i-- > 0 && !l->failed;) {
        out = pattern_lower(l, x->part[0], out);
        if (i >= x->lo)
            out = either(l, out, then);
    }
    return out;
}

/* A word boundary lies between a word character and another one, or an end of the text. */
static struct after boundary(struct lowering *l, bool wanted, struct after then)
{
    term word = term_cat(l->p, l->word, TERM_ALL), no_word = term_not(l->p, word);
    for (int i = 0; i < 3; i++)
        then.t[i] = term_and(l->p, then.t[i], (i == FRONT_WORD) == wanted ? no_word : word);
    return then;
}

static struct after ahead(struct lowering *l, struct part part, bool wanted, struct after then)
{
    struct after all = {{TERM_ALL, TERM_ALL, TERM_ALL}}, of = pattern_lower(l, part, all);
    for (int i = 0; i < 3; i++)
        then.t[i] = term_and(l->p, then.t[i], wanted ? of.t[i] : term_not(l->p, of.t[i]));
    return then;
}

struct after pattern_lower(struct lowering *l, struct part part, struct after then)
{
    const struct pattern_tree *x = part.tree;
    struct after out = {{TERM_NONE, TERM_NONE, TERM_NONE}};
    term_work(l->p, 16);
    if (l->failed || term_spent(l->p) || term_full(l->p))
        return out;
    if (!x)
        return of_term(l, part.t, then);
    switch (x->kind) {
    case P_TERM:
        break;
    case P_CAT:
        for (size_t i = x->n; i-- > 0;)
            then = pattern_lower(l, x->part[i], then);
        return then;
    case P_ALT:
        for (size_t i = 0; i < x->n; i++)
            out = either(l, out, pattern_lower(l, x->part[i], then));
        return out;
    case P_REPEAT:
        return repeat(l, x, then);
    case P_BEGIN:
        out.t[FRONT_NOTHING] = then.t[FRONT_NOTHING];
        return out;
    case P_END:
        for (int i = 0; i < 3; i++)
            out.t[i] = term_nullable(l->p, then.t[i]) ? TERM_EMPTY : TERM_NONE;
        return out;
    case P_BOUNDARY:
    case P_NO_BOUNDARY:
        return boundary(l, x->kind == P_BOUNDARY, then);
    case P_AHEAD:
    case P_NOT_AHEAD:
        return ahead(l, x->part[0], x->kind == P_AHEAD, then);
    }
    return out;
}
