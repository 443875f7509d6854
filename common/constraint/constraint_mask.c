/* constraint_mask.c - computes token masks.
 *
 * A mask is a walk of the vocabulary's trie, which takes a millisecond for a large one. States that
 * differ only in a large remaining count ("3,900 more characters") would each need one. So masks
 * are cached for two approximations shared by many states: a subset and a superset. Only the tokens
 * on which they differ (mostly very long ones) are tested from the exact state. */
#include "common/constraint/constraint_impl.h"
#include <stdlib.h>
#include <string.h>

enum {
    FINE = 16,       /* counts up to this are exact */
    MOST_OPEN = 4096 /* above this, all tokens are tested */
};

/* Tokens in this mask that are not in that of `under`. */
struct doubt {
    struct doubt *next;
    term under;
    bool many; /* more than MOST_OPEN; `open` is empty then */
    struct flat_trie open;
};

struct mask {
    struct doubt *doubts;
    uint32_t bits[]; /* [words] */
};

static size_t words_of(const struct constraint *c) { return (c->tokens->vocab + (size_t)31) / 32; }

void constraint_drop_masks(struct constraint *c)
{
    for (size_t i = 0; i < c->cap; i++) {
        struct doubt *d = c->mask[i] ? c->mask[i]->doubts : NULL;
        while (d) {
            struct doubt *next = d->next;
            flat_trie_free(&d->open);
            free(d);
            d = next;
        }
        free(c->mask[i]);
        c->mask[i] = NULL;
    }
    c->mask_bytes = 0;
}

/* ---------------------------------------------------------------- walks */

static void allow(uint32_t *mask, const uint32_t *id, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        mask[id[k] / 32] |= 1u << id[k] % 32;
}

/* Walks the nodes [i, end) of a trie; the first one is at `depth` and entered from `from`. */
static void walk_part(struct constraint *c, const struct flat_trie *t, uint32_t i, uint32_t end,
                      term from, uint32_t *mask)
{
    if (i < end)
        c->path[t->node[i].depth - 1] = from;
    while (i < end) {
        const struct flat_node *n = &t->node[i];
        term at = c->path[n->depth - 1];
        const uint32_t *row = at < c->cap ? c->by_class[at] : NULL;
        term to = row ? row[n->class_of] : STATE_UNKNOWN;
        if (to == STATES_DIFFER && (row = c->next[at]))
            to = row[n->byte];
        if (to >= STATES_DIFFER) {
            to = constraint_step(c, at, n->byte);
            if (term_spent(c->pool))
                return;
        }
        if (to == TERM_NONE) {
            i = n->past;
            continue;
        }
        c->path[n->depth] = to;
        allow(mask, t->id + n->ids, n->n_ids);
        i++;
    }
}

static void walk(struct constraint *c, const struct flat_trie *t, term from, uint32_t *mask)
{
    walk_part(c, t, 0, t->n, from, mask);
}

static void allow_at(const struct constraint *c, const struct class_trie *t,
                     const struct class_node *n, uint32_t *mask)
{
    const size_t words = words_of(c);
    if (!n->dense) {
        allow(mask, t->id + n->ids, n->n_ids);
        return;
    }
    const uint32_t *dense = t->dense + (n->dense - 1) * words;
    for (size_t i = 0; i < words; i++)
        mask[i] |= dense[i];
}

/* All tokens of `fine` from one state, using the class trie. */
static void walk_classes(struct constraint *c, const struct class_trie *t,
                         const struct flat_trie *fine, term from, uint32_t *mask)
{
    c->path[0] = from;
    for (uint32_t i = 0; i < t->n;) {
        const struct class_node *n = &t->node[i];
        term at = c->path[n->depth - 1];
        const uint32_t *row = at < c->cap ? c->by_class[at] : NULL;
        term to = row ? row[n->class_of] : STATE_UNKNOWN;
        if (to == STATE_UNKNOWN)
            to = constraint_step_class(c, at, n->class_of);
        if (to == STATES_DIFFER)
            for (uint32_t k = 0; k < n->n_fine; k++) {
                uint32_t first = t->fine[n->fine + k];
                walk_part(c, fine, first, fine->node[first].past, at, mask);
            }
        if (to == TERM_NONE && term_spent(c->pool))
            return;
        if (to == STATES_DIFFER || to == TERM_NONE) {
            i = n->past;
            continue;
        }
        c->path[n->depth] = to;
        allow_at(c, t, n, mask);
        i++;
    }
}

/* Inside an unbounded string any plain characters are allowed: all states reachable by them are
 * few, and none is dead. */
static bool any_plain(struct constraint *c, term from)
{
    enum { FEW = 24 };
    term at[FEW] = {from};
    unsigned n = 1;
    for (unsigned i = 0; i < n; i++) {
        term last = at[i];
        for (unsigned b = 0x20; b < 0x7f; b++) {
            term to = plain_byte((uint8_t)b) ? constraint_step(c, at[i], (uint8_t)b) : last;
            unsigned k = 0;
            if (to == TERM_NONE)
                return false;
            while (to != last && k < n && at[k] != to)
                k++;
            if (k == FEW)
                return false;
            if (k == n)
                at[n++] = to;
            last = to;
        }
    }
    return true;
}

static void end_tokens(struct constraint *c, term at, uint32_t *bits)
{
    for (uint32_t i = 0; i < c->tokens->n_end; i++) {
        uint32_t id = c->tokens->end[i], bit = 1u << id % 32;
        bits[id / 32] = term_nullable(c->pool, at) ? bits[id / 32] | bit : bits[id / 32] & ~bit;
    }
}

static int over_limits(const struct constraint *c, bool memory, struct err *e)
{
    if (memory && term_lost(c->pool))
        return err_nomem(e);
    return err_set(e, ERR_VALIDATION, "the constraint %s",
                   memory ? "needs too much memory" : "is too complex");
}

/* The exact mask of `at`, cached. NULL with `e` set: out of memory, or over the work limit. */
static struct mask *exact(struct constraint *c, term at, struct err *e)
{
    const size_t bytes = sizeof(struct mask) + words_of(c) * sizeof(uint32_t);
    if (!constraint_room(c, at))
        return err_nomem(e), NULL;
    if (c->mask[at])
        return c->mask[at];
    struct mask *m = calloc(1, bytes);
    if (!m)
        return err_nomem(e), NULL;
    const struct token_set *s = c->tokens;
    if (any_plain(c, at))
        memcpy(m->bits, s->plain_mask, words_of(c) * sizeof(uint32_t));
    else
        walk_classes(c, &s->plain_classes, &s->plain, at, m->bits);
    walk_classes(c, &s->rest_classes, &s->rest, at, m->bits);
    end_tokens(c, at, m->bits);
    if (term_spent(c->pool)) {
        free(m);
        return over_limits(c, false, e), NULL;
    }
    c->mask_bytes += bytes;
    return c->mask[at] = m;
}

/* ---------------------------------------------------------------- approximations */

/* The tokens in the mask of `over` that are not in that of `under`. NULL: out of memory. */
static const struct doubt *doubt_between(struct constraint *c, struct mask *over,
                                         const struct mask *less, term under)
{
    size_t words = words_of(c), n = 0;
    struct doubt *d = over->doubts;
    while (d && d->under != under)
        d = d->next;
    if (d)
        return d;
    uint32_t *differ = malloc(words * sizeof(*differ));
    d = calloc(1, sizeof(*d));
    for (size_t i = 0; differ && i < words; i++) {
        differ[i] = over->bits[i] & ~less->bits[i];
        if (differ[i])
            n += (size_t)__builtin_popcount(differ[i]);
    }
    if (!differ || !d || (n && n <= MOST_OPEN && flat_trie_pick(&d->open, c->tokens, differ))) {
        free(differ);
        free(d);
        return NULL;
    }
    free(differ);
    d->many = n > MOST_OPEN;
    d->under = under;
    d->next = over->doubts;
    over->doubts = d;
    c->mask_bytes += sizeof(*d) + d->open.n * (sizeof(*d->open.node) + sizeof(*d->open.id));
    return d;
}

/* Selects the vocabulary; masks of another one are dropped. */
static bool use_tokens(struct constraint *c, const struct token_set *tokens)
{
    if (c->tokens == tokens)
        return true;
    term *path = realloc(c->path, (tokens->longest + (size_t)1) * sizeof(*path));
    if (!path)
        return false;
    c->path = path;
    c->tokens = tokens;
    constraint_drop_masks(c);
    return true;
}

static int fill(struct constraint *c, term at, uint32_t *bits, struct err *e)
{
    const size_t bytes = words_of(c) * sizeof(*bits);
    term under, over;
    if (c->mask_bytes > MASK_BYTES)
        constraint_drop_masks(c);
    term_coarse(c->pool, at, c->tokens->longest, FINE, &under, &over);
    struct mask *more = exact(c, over, e);
    const struct mask *less =
        more && under != over && under != TERM_NONE ? exact(c, under, e) : more;
    if (!less)
        return -1;
    const struct doubt *d = NULL;
    if (under != over && under != TERM_NONE && !(d = doubt_between(c, more, less, under)))
        return err_nomem(e);
    if (under != over && (!d || d->many)) {
        if (!(less = exact(c, at, e)))
            return -1;
        d = NULL;
    }
    memcpy(bits, less->bits, bytes);
    if (d)
        walk(c, &d->open, at, bits);
    end_tokens(c, at, bits);
    if (term_spent(c->pool) || term_full(c->pool))
        return over_limits(c, !term_spent(c->pool), e);
    return 0;
}

int constraint_mask(struct constraint *c, constraint_state at, const struct token_set *tokens,
                    uint32_t *mask, struct err *e)
{
    const size_t words = (tokens->vocab + (size_t)31) / 32;
    int rc = -1;
    at = constraint_enter(c, at);
    term_budget(c->pool, MASK_STEPS);
    if (at == CONSTRAINT_SPENT)
        over_limits(c, term_full(c->pool), e);
    else if (at == CONSTRAINT_DEAD && c->why.kind)
        *e = c->why;
    else if (at == CONSTRAINT_DEAD)
        err_set(e, ERR_GENERATION, "the text does not satisfy its constraint");
    else
        rc = use_tokens(c, tokens) ? fill(c, at, mask, e) : err_nomem(e);
    pthread_mutex_unlock(&c->lock);
    if (rc)
        return -1;
    for (size_t i = 0; i < words; i++)
        if (mask[i])
            return 0;
    return err_set(e, ERR_VALIDATION, "no token of the vocabulary satisfies the constraint");
}
