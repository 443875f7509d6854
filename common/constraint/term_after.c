/* term_after.c - derivatives, and which terms can still be finished. */
#include "common/constraint/term_impl.h"
#include <stdlib.h>
#include <string.h>

static term derive(struct term_pool *p, term t, uint8_t byte);

static term derive_parts(struct term_pool *p, struct node n, uint8_t byte)
{
    size_t from = p->scratch.n;
    for (uint32_t i = 0; i < n.b; i++) {
        term d = derive(p, p->kids.at[n.a + i], byte);
        if (d == TERM_NONE && n.kind == AND) {
            p->scratch.n = from;
            return TERM_NONE;
        }
        if (d != TERM_NONE)
            term_add_part(p, n.kind, d);
    }
    return term_combine(p, n.kind, from);
}

static term derive_repeat(struct term_pool *p, struct node n, uint8_t byte)
{
    term d = derive(p, n.a, byte);
    if (d == TERM_NONE)
        return d;
    uint32_t hi = n.hi == TERM_UNBOUNDED ? n.hi : n.hi - 1;
    return term_cat(p, d, term_repeat(p, n.a, n.lo ? n.lo - 1 : 0, hi));
}

/* A rule that would call itself before any byte adds nothing to its own language. */
static term derive_rule(struct term_pool *p, term t, uint8_t byte)
{
    if (p->active[t])
        return TERM_NONE;
    p->active[t] = 1;
    term d = derive(p, node(p, t)->a, byte);
    p->active[t] = 0;
    return d;
}

static term derive(struct term_pool *p, term t, uint8_t byte)
{
    struct node n = *node(p, t); /* a copy: the pool moves */
    if (!p->left)
        return TERM_NONE;
    p->left--;
    switch ((enum kind)n.kind) {
    case NONE:
    case EMPTY:
        return TERM_NONE;
    case SET:
        return byte_set_has(&p->set[n.a], byte) ? TERM_EMPTY : TERM_NONE;
    case CAT: {
        term d = term_cat(p, derive(p, n.a, byte), n.b);
        return node(p, n.a)->nullable ? term_alt(p, d, derive(p, n.b, byte)) : d;
    }
    case ALT:
    case AND:
        return derive_parts(p, n, byte);
    case NOT:
        return term_not(p, derive(p, n.a, byte));
    case REPEAT:
        return derive_repeat(p, n, byte);
    case RULE:
        return derive_rule(p, t, byte);
    }
    return TERM_NONE;
}

/* ---------------------------------------------------------------- bytes that a term tells apart */

enum { MAX_SETS = 64 };

static int first_sets(const struct term_pool *p, term t, const struct byte_set **out, int n,
                      int depth)
{
    const struct node *x = node(p, t);
    if (n == MAX_SETS || depth > 64)
        return MAX_SETS;
    switch ((enum kind)x->kind) {
    case SET:
        out[n] = &p->set[x->a];
        return n + 1;
    case CAT:
        n = first_sets(p, x->a, out, n, depth + 1);
        return node(p, x->a)->nullable ? first_sets(p, x->b, out, n, depth + 1) : n;
    case ALT:
    case AND:
        for (uint32_t i = 0; i < x->b; i++)
            n = first_sets(p, p->kids.at[x->a + i], out, n, depth + 1);
        return n;
    case NOT:
    case REPEAT:
    case RULE:
        return first_sets(p, x->a, out, n, depth + 1);
    case NONE:
    case EMPTY:
        break;
    }
    return n;
}

/* One byte of each class of bytes with equal derivatives (all bytes, when there are too many). */
static int representatives(const struct term_pool *p, term t, uint8_t out[256])
{
    const struct byte_set *set[MAX_SETS];
    uint64_t seen[256];
    int n_sets = first_sets(p, t, set, 0, 0), n = 0;
    for (int b = 0; b < 256; b++) {
        uint64_t has = 0;
        int k = 0;
        for (int s = 0; n_sets < MAX_SETS && s < n_sets; s++)
            has |= (uint64_t)byte_set_has(set[s], (uint8_t)b) << s;
        while (n_sets < MAX_SETS && k < n && seen[k] != has)
            k++;
        if (n_sets < MAX_SETS && k < n)
            continue;
        seen[n] = has;
        out[n++] = (uint8_t)b;
    }
    return n;
}

/* ---------------------------------------------------------------- can it be finished? */

enum { SEARCH = 4096 }; /* terms looked at before "yes" is assumed */

struct search { /* breadth first: the nearest end is found, and the way there is known to live */
    term at[SEARCH];
    int32_t from[SEARCH];
    int n;
};

static bool seen_before(const struct search *s, term t)
{
    for (int i = 0; i < s->n; i++)
        if (s->at[i] == t)
            return true;
    return false;
}

/* The derivatives of at[i]; true when one of them can end. */
static bool expand(struct term_pool *p, struct search *s, int i)
{
    uint8_t bytes[256];
    int n = representatives(p, s->at[i], bytes);
    for (int b = 0; b < n && s->n < SEARCH; b++) {
        term t = derive(p, s->at[i], bytes[b]);
        if (t == TERM_NONE || node(p, t)->living == DEAD || seen_before(s, t))
            continue;
        s->at[s->n] = t, s->from[s->n] = i, s->n++;
        if (node(p, t)->nullable || node(p, t)->living == LIVES || !node(p, t)->checked)
            return true;
    }
    return false;
}

static bool lives(struct term_pool *p, term t)
{
    if (node(p, t)->living)
        return node(p, t)->living == LIVES;
    struct search *s = malloc(sizeof(*s));
    bool found = node(p, t)->nullable || !s;
    if (s) {
        s->at[0] = t, s->from[0] = -1, s->n = 1;
        for (int i = 0; !found && i < s->n && s->n < SEARCH && !p->full && p->left; i++)
            found = expand(p, s, i);
        bool given_up = s->n >= SEARCH || p->full || !p->left;
        if (found)
            for (int i = s->n - 1; i >= 0; i = s->from[i])
                p->node[s->at[i]].living = LIVES;
        for (int i = 0; !found && !given_up && i < s->n; i++)
            p->node[s->at[i]].living = DEAD;
        found |= given_up;
    }
    free(s);
    if (p->left)
        p->node[t].living = found ? LIVES : DEAD;
    return found;
}

/* Without the alternatives whose head cannot be finished. */
static term prune(struct term_pool *p, term t)
{
    struct node n = *node(p, t);
    if (!n.checked)
        return t;
    switch ((enum kind)n.kind) {
    case AND:
    case NOT:
        return lives(p, t) ? t : TERM_NONE;
    case CAT:
        return term_cat(p, prune(p, n.a), n.b);
    case ALT: {
        size_t from = p->scratch.n;
        for (uint32_t i = 0; i < n.b; i++)
            term_add_part(p, ALT, prune(p, p->kids.at[n.a + i]));
        return term_combine(p, ALT, from);
    }
    default:
        return t;
    }
}

bool term_possible(struct term_pool *p, term t)
{
    return t != TERM_NONE && (!node(p, t)->checked || lives(p, t));
}

term term_after(struct term_pool *p, term t, uint8_t byte) { return prune(p, derive(p, t, byte)); }

term term_after_all(struct term_pool *p, term t, const void *text, size_t n)
{
    for (size_t i = 0; i < n && t != TERM_NONE; i++)
        t = term_after(p, t, ((const uint8_t *)text)[i]);
    return t;
}

/* ---------------------------------------------------------------- terms made anew */

/* A copy of t, its leaves and counts changed by `leaf` and `repeat`; `memo` [nodes] is 0 or the
 * result + 1. */
struct rewrite {
    struct term_pool *p;
    term (*leaf)(struct rewrite *r, term t); /* RULE, AND, NOT after their parts */
    uint32_t horizon;                        /* counts beyond it are forgotten; 0: none are */
    uint32_t *memo; /* [nodes that there were at the beginning]; NULL: the nodes' own `horizon` */
};

static uint32_t *memo_of(struct rewrite *r, term t)
{
    return r->memo ? &r->memo[t] : &r->p->node[t].horizon;
}

static term rewrite(struct rewrite *r, term t);

static term rewrite_cat(struct rewrite *r, term t)
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

static term rewrite_repeat(struct rewrite *r, struct node n)
{
    term a = rewrite(r, n.a);
    uint32_t lo = n.lo, hi = n.hi;
    if (r->horizon && lo > r->horizon)
        lo = r->horizon + 1;
    if (r->horizon && hi > r->horizon)
        hi = TERM_UNBOUNDED;
    return term_repeat(r->p, a, lo, hi);
}

static term rewrite(struct rewrite *r, term t)
{
    struct term_pool *p = r->p;
    struct node n = *node(p, t);
    if (*memo_of(r, t))
        return *memo_of(r, t) - 1;
    term made = t;
    size_t from = p->scratch.n;
    switch ((enum kind)n.kind) {
    case NONE:
    case EMPTY:
    case SET:
        break;
    case CAT:
        made = rewrite_cat(r, t);
        break;
    case ALT:
    case AND:
        for (uint32_t i = 0; i < n.b; i++)
            term_add_part(p, n.kind, rewrite(r, p->kids.at[n.a + i]));
        made = term_combine(p, n.kind, from);
        break;
    case NOT:
        made = term_not(p, rewrite(r, n.a));
        break;
    case REPEAT:
        made = rewrite_repeat(r, n);
        break;
    case RULE:
        break;
    }
    if (r->leaf)
        made = r->leaf(r, made);
    *memo_of(r, t) = made + 1;
    return made;
}

term term_horizon(struct term_pool *p, term t, uint32_t n)
{
    if (p->horizon_bytes != n) {
        for (size_t i = 0; i < p->n_nodes; i++)
            p->node[i].horizon = 0;
        p->horizon_bytes = n;
    }
    return rewrite(&(struct rewrite){.p = p, .horizon = n}, t);
}

/* ---------------------------------------------------------------- closing */

/* Has t any finite text, if the rules marked in `good` have? Intersections are taken to have one:
 * lives() looks closer. */
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
        case CAT: /* the loop goes on with what follows */
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

static term drop_dead(struct rewrite *r, term t)
{
    struct node n = *node(r->p, t);
    if (n.kind == RULE)
        return n.lo ? t : TERM_NONE; /* `lo` of a rule: it is productive */
    if (n.kind == AND || (n.kind == NOT && t != TERM_ALL))
        return lives(r->p, t) ? t : TERM_NONE;
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

/* One round; *more says whether a rule changed. */
static term close_round(struct term_pool *p, term root, bool *more)
{
    size_t n = p->n_nodes;
    uint8_t *good = calloc(n, 1);
    struct rewrite r = {.p = p, .leaf = drop_dead, .memo = calloc(n, sizeof(*r.memo))};
    *more = false;
    if (!good || !r.memo)
        p->full = true;
    else
        mark_productive(p, good);
    for (size_t i = 0; i < n && !p->full; i++)
        if (node(p, (term)i)->kind == RULE) {
            term old = node(p, (term)i)->a, body = good[i] ? rewrite(&r, old) : TERM_NONE;
            *more |= body != old;
            p->node[i].a = body;
        }
    root = p->full ? TERM_NONE : rewrite(&r, root);
    free(good);
    free(r.memo);
    return root;
}

/* Dropping an intersection may leave a rule without texts, so until nothing changes. */
term term_close(struct term_pool *p, term root)
{
    for (bool more = true; more && !p->full;)
        root = close_round(p, root, &more);
    return p->full ? TERM_NONE : root;
}
