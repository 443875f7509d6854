/* term_rewrite.c - rebuilds terms: with coarser counts, or without empty parts. */
#include "common/constraint/term_impl.h"
#include <stdlib.h>

/* State of a copy of t with changed leaves and counts. */
struct term_rewrite {
    struct term_pool *p;
    term (*leaf)(struct term_rewrite *r, term t); /* for RULE, AND, NOT, after their parts */
    /* [nodes at the start]: 0, or 1 + the result; NULL: the nodes' own `coarse` */
    uint32_t *memo;
    /* of term_coarse(), or 0: */
    uint32_t far, fine;
    bool over;   /* superset, not subset */
    bool inside; /* inside an intersection or complement */
};

static uint32_t *memo_of(struct term_rewrite *r, term t)
{
    return r->memo ? &r->memo[t] : &r->p->node[t].coarse[r->over][r->inside];
}

static term rewrite(struct term_rewrite *r, term t);

static term rewrite_cat(struct term_rewrite *r, term t)
{
    struct term_pool *p = r->p;
    size_t from = p->scratch.n;
    while (node(p, t)->kind == CAT && !*memo_of(r, t)) {
        term head = rewrite(r, node(p, t)->a);
        term_push(p, &p->scratch, head);
        t = node(p, t)->b;
    }
    term made = rewrite(r, t);
    while (p->scratch.n > from)
        made = term_cat(p, p->scratch.at[--p->scratch.n], made);
    return made;
}

/* The largest power of two not above n. */
static uint32_t tier(uint32_t n) { return UINT32_C(1) << (31 - __builtin_clz(n)); }

/* The smallest power of two not below n; unbounded for large n. So 64, the maximum JSON
 * indentation, is kept, and states between values share a mask. */
static uint32_t tier_above(uint32_t n)
{
    enum { ROUNDED = 64 };
    return n > ROUNDED ? TERM_UNBOUNDED : tier(n) == n ? n : 2 * tier(n);
}

/* Counts beyond any token's length do not matter. But inside an intersection they may decide
 * whether both sides can be satisfied: two characters left may be too few for a pattern. There, and
 * for counts within reach of long tokens, bounds are kept. */
static term rewrite_repeat(struct term_rewrite *r, struct node n)
{
    term a = rewrite(r, n.a);
    uint32_t lo = n.lo, hi = n.hi;
    if (r->far && !r->inside) {
        lo = lo > r->far ? r->far + 1 : lo;
        hi = hi > r->far ? TERM_UNBOUNDED : hi;
    }
    if (r->far && lo > r->fine && (r->inside || lo <= r->far))
        lo = r->over ? r->fine + 1 : 2 * tier(lo - 1);
    if (r->far && hi > r->fine && hi != TERM_UNBOUNDED)
        hi = r->over ? tier_above(hi) : tier(hi);
    return term_repeat(r->p, a, lo, hi);
}

static term rewrite_parts(struct term_rewrite *r, struct node n)
{
    struct term_pool *p = r->p;
    size_t from = p->scratch.n;
    bool outside = !r->inside;
    r->inside |= n.kind == AND;
    for (uint32_t i = 0; i < n.b; i++) {
        term made = rewrite(r, p->kids.at[n.a + i]);
        term_add_part(p, n.kind, made);
    }
    r->inside = !outside;
    return term_combine(p, n.kind, from);
}

static term rewrite_not(struct term_rewrite *r, struct node n)
{
    bool outside = !r->inside;
    r->inside = true;
    r->over = !r->over;
    term made = term_not(r->p, rewrite(r, n.a));
    r->over = !r->over;
    r->inside = !outside;
    return made;
}

static term rewrite(struct term_rewrite *r, term t)
{
    struct node n = *node(r->p, t);
    if (*memo_of(r, t))
        return *memo_of(r, t) - 1;
    if (!r->p->left) /* no result to remember */
        return TERM_NONE;
    term made = t;
    switch ((enum kind)n.kind) {
    case NONE:
    case EMPTY:
    case SET:
    case RULE:
        break;
    case CAT:
        made = rewrite_cat(r, t);
        break;
    case ALT:
    case AND:
        made = rewrite_parts(r, n);
        break;
    case NOT:
        made = rewrite_not(r, n);
        break;
    case REPEAT:
        made = rewrite_repeat(r, n);
        break;
    }
    if (r->leaf)
        made = r->leaf(r, made);
    if (r->p->left)
        *memo_of(r, t) = made + 1;
    return made;
}

/* ---------------------------------------------------------------- coarser counts */

void term_coarse(struct term_pool *p, term t, uint32_t far, uint32_t fine, term *under, term *over)
{
    if (p->far != far || p->fine != fine) {
        for (size_t i = 0; i < p->n_nodes; i++)
            p->node[i].coarse[0][0] = p->node[i].coarse[0][1] = p->node[i].coarse[1][0] =
                p->node[i].coarse[1][1] = 0;
        p->far = far, p->fine = fine;
    }
    struct term_rewrite r = {.p = p, .far = far, .fine = fine};
    *under = rewrite(&r, t);
    r.over = true;
    *over = rewrite(&r, t);
}

/* ---------------------------------------------------------------- closing */

/* Does t have a finite text, assuming that rules in `good` have one? Intersections are assumed to
 * have one; term_lives() checks them. */
static bool productive(const struct term_pool *p, term t, const uint8_t *good)
{
    for (const struct node *n = node(p, t);; n = node(p, t = n->b)) {
        bool any = false;
        switch ((enum kind)n->kind) {
        case NONE:
            return false;
        case EMPTY:
        case SET:
        case AND:
        case NOT:
            return true;
        case CAT: /* continues with the tail */
            if (!productive(p, n->a, good))
                return false;
            continue;
        case ALT:
            for (uint32_t i = 0; i < n->b && !any; i++)
                any = productive(p, p->kids.at[n->a + i], good);
            return any;
        case REPEAT:
            return !n->lo || productive(p, n->a, good);
        case RULE:
            return good[t];
        }
    }
}

static term drop_dead(struct term_rewrite *r, term t)
{
    struct node n = *node(r->p, t);
    if (n.kind == RULE)
        return n.lo ? t : TERM_NONE; /* `lo` of a rule: it is productive */
    if (n.kind == AND || (n.kind == NOT && t != TERM_ALL))
        return term_lives(r->p, t) ? t : TERM_NONE;
    return t;
}

static void mark_productive(struct term_pool *p, uint8_t *good)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < p->n_nodes; i++)
            if (node(p, (term)i)->kind == RULE && !good[i] &&
                productive(p, node(p, (term)i)->a, good))
                good[i] = more = true;
    }
    for (size_t i = 0; i < p->n_nodes; i++)
        if (node(p, (term)i)->kind == RULE)
            p->node[i].lo = good[i];
}

/* One pass; *more: a rule changed. */
static term close_round(struct term_pool *p, term root, bool *more)
{
    size_t n = p->n_nodes;
    uint8_t *good = calloc(n, 1);
    struct term_rewrite r = {.p = p, .leaf = drop_dead, .memo = calloc(n, sizeof(*r.memo))};
    *more = false;
    if (!good || !r.memo)
        term_no_memory(p);
    else
        mark_productive(p, good);
    for (size_t i = 0; i < n && good && !p->full; i++)
        if (node(p, (term)i)->kind == RULE) {
            term old = node(p, (term)i)->a, body = good[i] ? rewrite(&r, old) : TERM_NONE;
            *more |= body != old;
            p->node[i].a = body;
        }
    term_clear_derived(p);
    root = p->full ? TERM_NONE : rewrite(&r, root);
    free(good);
    free(r.memo);
    return root;
}

/* Dropping an intersection may make a rule empty, so repeat until nothing changes. */
term term_close(struct term_pool *p, term root)
{
    for (bool more = true; more && !p->full;)
        root = close_round(p, root, &more);
    return p->full ? TERM_NONE : root;
}
