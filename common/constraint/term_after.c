/* term_after.c - derivatives, and emptiness of terms. */
#include "common/constraint/term_impl.h"
#include "common/hash.h"
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

/* A left-recursive rule adds nothing to its own language. */
static term derive_rule(struct term_pool *p, term t, uint8_t byte)
{
    if (p->active[t]) {
        p->cut = true;
        return TERM_NONE;
    }
    p->active[t] = 1;
    term d = derive(p, node(p, t)->a, byte);
    p->active[t] = 0;
    return d;
}

/* Of a CAT; `tail`: the derivative of its second part, which only matters after a nullable head. */
static term derive_head(struct term_pool *p, struct node n, uint8_t byte, term tail)
{
    term d = term_cat(p, derive(p, n.a, byte), n.b);
    return node(p, n.a)->nullable ? term_alt(p, d, tail) : d;
}

static term derive_anew(struct term_pool *p, struct node n, term t, uint8_t byte)
{
    switch ((enum kind)n.kind) {
    case NONE:
    case EMPTY:
        return TERM_NONE;
    case SET:
        return byte_set_has(&p->set[n.a], byte) ? TERM_EMPTY : TERM_NONE;
    case CAT:
        return derive_head(p, n, byte, TERM_NONE);
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

void term_clear_derived(struct term_pool *p)
{
    if (p->derived_any)
        memset(p->derived, 0, DERIVED * sizeof(*p->derived));
    p->derived_any = false;
}

/* The cache slot for a derivative of t; NULL: not cached. */
static struct derived *place_of(struct term_pool *p, term t, uint8_t byte)
{
    if (!p->derived)
        p->derived = calloc(DERIVED, sizeof(*p->derived));
    return p->derived ? &p->derived[hash_mix(((uint64_t)t << 8) + byte) % DERIVED] : NULL;
}

static bool skippable(const struct term_pool *p, struct node n)
{
    return n.kind == CAT && node(p, n.a)->nullable;
}

static bool is_kept(const struct derived *kept, term t, uint8_t byte)
{
    return kept && kept->from == t && kept->byte == byte;
}

/* States of a count share most of their parts: derivatives of parts are cached, unless they depend
 * on rules being expanded. `tail`: of derive_head(). */
static term derive_kept(struct term_pool *p, term t, uint8_t byte, term tail)
{
    struct node n = *node(p, t); /* a copy, because the pool may move */
    if (!p->left)
        return TERM_NONE;
    p->left--;
    if (n.kind <= SET)
        return derive_anew(p, n, t, byte);
    struct derived *kept = place_of(p, t, byte);
    if (is_kept(kept, t, byte))
        return kept->to;
    term to = skippable(p, n) ? derive_head(p, n, byte, tail) : derive_anew(p, n, t, byte);
    if (kept && !p->cut && p->left && !p->full) {
        *kept = (struct derived){t, to, byte};
        p->derived_any = true;
    }
    return to;
}

/* The derivative of a chain whose first heads are nullable is the union over these heads. There may
 * be thousands, too many for a recursion. From the last one, because tails are cached. */
static term derive(struct term_pool *p, term t, uint8_t byte)
{
    const size_t from = p->scratch.n;
    const bool cut = p->cut;
    if (p->deriving == TERM_DEPTH)
        p->left = 0;
    if (!p->left)
        return TERM_NONE;
    p->deriving++;
    p->cut = false;
    while (p->left && skippable(p, *node(p, t)) && !is_kept(place_of(p, t, byte), t, byte) &&
           term_push(p, &p->scratch, t))
        t = node(p, t)->b;
    term d = derive_kept(p, t, byte, TERM_NONE);
    while (p->scratch.n > from)
        d = derive_kept(p, p->scratch.at[--p->scratch.n], byte, d);
    p->cut |= cut;
    p->deriving--;
    return d;
}

/* ---------------------------------------------------------------- byte classes of a term */

enum { MAX_SETS = 64 };

/* Lists each set once; visited terms are skipped. */
static int list_sets(struct term_pool *p, term t, uint32_t *out, int n, int depth)
{
    struct node *x = &p->node[t];
    if (n == MAX_SETS || depth > 64)
        return MAX_SETS;
    if (x->listed == p->lists)
        return n;
    x->listed = p->lists;
    switch ((enum kind)x->kind) {
    case SET:
        out[n] = x->a;
        return n + 1;
    case CAT:
        n = list_sets(p, x->a, out, n, depth + 1);
        return node(p, x->a)->nullable ? list_sets(p, x->b, out, n, depth + 1) : n;
    case ALT:
    case AND:
        for (uint32_t i = 0; i < x->b; i++)
            n = list_sets(p, p->kids.at[x->a + i], out, n, depth + 1);
        return n;
    case NOT:
    case REPEAT:
    case RULE:
        return list_sets(p, x->a, out, n, depth + 1);
    case NONE:
    case EMPTY:
        break;
    }
    return n;
}

/* The sets that determine the derivative by the first byte of t; MAX_SETS: too many. */
static int first_sets(struct term_pool *p, term t, uint32_t out[MAX_SETS])
{
    p->lists++;
    return list_sets(p, t, out, 0, 0);
}

/* The bytes in the same of the n sets as `byte`; MAX_SETS: too many. */
static struct byte_set alike_by(const struct term_pool *p, const uint32_t *set, int n, uint8_t byte)
{
    struct byte_set alike = {{0}};
    if (n == MAX_SETS) {
        byte_set_add(&alike, byte, byte);
        return alike;
    }
    byte_set_add(&alike, 0, 255);
    for (int i = 0; i < n; i++) {
        const struct byte_set *of = &p->set[set[i]];
        const uint64_t other = byte_set_has(of, byte) ? 0 : UINT64_MAX;
        for (int w = 0; w < 4; w++)
            alike.bits[w] &= of->bits[w] ^ other;
    }
    return alike;
}

struct byte_set term_alike(struct term_pool *p, term t, uint8_t byte)
{
    uint32_t set[MAX_SETS];
    int n = first_sets(p, t, set);
    term_work(p, (uint64_t)n / 8);
    return alike_by(p, set, n, byte);
}

/* ---------------------------------------------------------------- emptiness */

enum { SEARCH = 4096 }; /* terms searched before "not empty" is assumed */

/* breadth first: finds the nearest end, and all terms on the path are then known to be non-empty */
struct term_search {
    term at[SEARCH];
    int32_t from[SEARCH];
    int n;
};

static bool seen_before(struct term_pool *p, term t)
{
    bool seen = p->node[t].seen == p->search;
    p->node[t].seen = p->search;
    return seen;
}

static bool surely_lives(struct term_pool *p, term t)
{
    struct node *n = &p->node[t];
    if (n->nullable || !n->checked)
        return true;
    if (n->living == UNKNOWN) {
        const int living = term_lives_by_length(p, t);
        p->node[t].living = (uint8_t)living; /* the pool may have moved */
    }
    return p->node[t].living == LIVES;
}

/* Adds the derivatives of at[i], by one byte per class. True: one of them is nullable. */
static bool expand(struct term_pool *p, struct term_search *s, int i)
{
    uint32_t set[MAX_SETS];
    struct byte_set done = {{0}};
    int sets = first_sets(p, s->at[i], set);
    for (unsigned b = 0; b < 256 && s->n < SEARCH; b++) {
        if (byte_set_has(&done, (uint8_t)b))
            continue;
        struct byte_set alike = alike_by(p, set, sets, (uint8_t)b);
        term_work(p, (uint64_t)sets / 8);
        for (int w = 0; w < 4; w++)
            done.bits[w] |= alike.bits[w];
        term t = derive(p, s->at[i], (uint8_t)b);
        if (t == TERM_NONE || node(p, t)->living == DEAD || seen_before(p, t))
            continue;
        const bool lives = surely_lives(p, t);
        if (node(p, t)->living == DEAD)
            continue;
        s->at[s->n] = t, s->from[s->n] = i, s->n++;
        if (lives) {
            p->last_byte = (uint8_t)b;
            return true;
        }
    }
    return false;
}

/* Fast path: usually the byte that completed the last state completes this one, such as one more
 * letter. */
static bool lives_quickly(struct term_pool *p, term t)
{
    if (surely_lives(p, t))
        return true;
    term next = derive(p, t, p->last_byte);
    return next != TERM_NONE && surely_lives(p, next) && p->left;
}

bool term_lives(struct term_pool *p, term t)
{
    if (node(p, t)->living)
        return node(p, t)->living == LIVES;
    bool found = lives_quickly(p, t);
    if (node(p, t)->living)
        return node(p, t)->living == LIVES;
    struct term_search *s = found ? NULL : malloc(sizeof(*s));
    if (!found && !s)
        return true;
    if (s) {
        s->at[0] = t, s->from[0] = -1, s->n = 1;
        p->search++;
        seen_before(p, t);
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

/* Drops alternatives whose head is empty. */
static term prune(struct term_pool *p, term t)
{
    struct node n = *node(p, t);
    if (!n.checked)
        return t;
    switch ((enum kind)n.kind) {
    case AND:
    case NOT:
        return term_lives(p, t) ? t : TERM_NONE;
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
    return t != TERM_NONE && (!node(p, t)->checked || term_lives(p, t));
}

term term_after(struct term_pool *p, term t, uint8_t byte) { return prune(p, derive(p, t, byte)); }

term term_after_all(struct term_pool *p, term t, const void *text, size_t n)
{
    for (size_t i = 0; i < n && t != TERM_NONE; i++)
        t = term_after(p, t, ((const uint8_t *)text)[i]);
    return t;
}
