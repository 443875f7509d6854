/* constraint_mask.c - which tokens may come next.
 *
 * A mask is a walk of the vocabulary's trie, and the walk of a large one costs a millisecond.
 * States that differ in what is left of a large count ("3,900 more characters") would each need
 * their own. So masks are kept of two coarser states that many share: one that allows less and one
 * that allows more. Only the tokens that they disagree about (mostly very long ones) are tried from
 * the very state. */
#include "common/constraint/constraint_impl.h"
#include <stdlib.h>
#include <string.h>

enum {
    FINE = 16,       /* counts up to here are kept as they are */
    MOST_OPEN = 4096 /* more tokens in doubt than this: all are tried */
};

/* Tokens that are in this mask and not in that of `under`. */
struct doubt {
    struct doubt *next;
    term under;
    bool many; /* more than MOST_OPEN; then `open` is empty */
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

static void walk(struct constraint *c, const struct flat_trie *t, term from, uint32_t *mask)
{
    c->path[0] = from;
    for (uint32_t i = 0; i < t->n;) {
        const struct flat_node *n = &t->node[i];
        term at = c->path[n->depth - 1];
        const uint32_t *next = at < c->cap ? c->next[at] : NULL;
        term to = next ? next[n->byte] : STATE_UNKNOWN;
        if (to == STATE_UNKNOWN) {
            to = constraint_step(c, at, n->byte);
            if (term_spent(c->pool))
                return;
        }
        if (to == TERM_NONE) {
            i = n->past;
            continue;
        }
        c->path[n->depth] = to;
        for (uint32_t k = 0; k < n->n_ids; k++) {
            uint32_t id = t->id[n->ids + k];
            mask[id / 32] |= 1u << id % 32;
        }
        i++;
    }
}

/* Inside a string that may go on for ever, plain characters change nothing. */
static bool stays(struct constraint *c, term t)
{
    for (unsigned b = 0; b < 256; b++)
        if (plain_byte((uint8_t)b) && constraint_step(c, t, (uint8_t)b) != t)
            return false;
    return true;
}

static void end_tokens(struct constraint *c, term at, uint32_t *bits)
{
    for (uint32_t i = 0; i < c->tokens->n_end; i++) {
        uint32_t id = c->tokens->end[i], bit = 1u << id % 32;
        bits[id / 32] = term_nullable(c->pool, at) ? bits[id / 32] | bit : bits[id / 32] & ~bit;
    }
}

/* The mask of `at` itself, kept. NULL with `e` set: no memory, or too much work. */
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
    if (stays(c, at))
        memcpy(m->bits, c->tokens->plain_mask, words_of(c) * sizeof(uint32_t));
    else
        walk(c, &c->tokens->plain, at, m->bits);
    walk(c, &c->tokens->rest, at, m->bits);
    end_tokens(c, at, m->bits);
    if (term_spent(c->pool)) {
        free(m);
        return err_set(e, ERR_GENERATION, "the constraint is too complex"), NULL;
    }
    c->mask_bytes += bytes;
    return c->mask[at] = m;
}

/* ---------------------------------------------------------------- between two states */

/* What is in the mask of `over` and not in that of `under`. NULL: out of memory. */
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

/* The masks of `tokens`; those of another vocabulary are forgotten. */
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
    if (term_spent(c->pool))
        return err_set(e, ERR_GENERATION, "the constraint is too complex");
    if (term_full(c->pool))
        return err_set(e, ERR_GENERATION, "the constraint needs too much memory");
    return 0;
}

int constraint_mask(struct constraint *c, constraint_state at, const struct token_set *tokens,
                    uint32_t *mask, struct err *e)
{
    const size_t words = (tokens->vocab + (size_t)31) / 32;
    int rc = -1;
    at = constraint_enter(c, at);
    term_budget(c->pool, MASK_STEPS);
    if (at == CONSTRAINT_DEAD && c->why.kind)
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
    return err_set(e, ERR_GENERATION, "no token of the vocabulary goes on as the constraint wants");
}
