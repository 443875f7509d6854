/* constraint.c - terms as states, their transitions and masks kept as they are found. */
#include "common/constraint/constraint.h"
#include "common/constraint/pattern.h"
#include "common/constraint/schema.h"
#include "common/constraint/token_set_impl.h"
#include "common/json.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Bounds of one constraint's memory, in bytes. */
enum { POOL_BYTES = 64 << 20, TABLE_BYTES = 32 << 20, MASK_BYTES = 64 << 20 };
/* Bounds of its work, in steps of some 20 ns: what a compilation, a mask or a token may take.
 * Nobody else's answer is to wait for a constraint that is too clever. */
enum { COMPILE_STEPS = 1000000, MASK_STEPS = 2000000 };
enum { UNKNOWN = UINT32_MAX };

struct constraint {
    atomic_uint refs;
    pthread_mutex_t lock;
    struct term_pool *pool;
    term start;
    uint32_t **next; /* [term] -> [256] the state behind each byte; NULL: never left */
    uint32_t **mask; /* [term, as far as a token sees] -> words; NULL: never asked for */
    size_t cap, table_bytes, mask_bytes;
    const struct token_set *tokens; /* what the masks are of */
    term *path;                     /* [longest token + 1] */
};

static void drop(uint32_t **table, size_t n, size_t *bytes)
{
    for (size_t i = 0; i < n; i++) {
        free(table[i]);
        table[i] = NULL;
    }
    *bytes = 0;
}

/* ---------------------------------------------------------------- life */

static term compile(struct constraint *c, enum constraint_kind kind, const char *text, size_t n,
                    struct err *e)
{
    if (kind == CONSTRAINT_REGEX)
        return pattern_term(c->pool, text, n, PATTERN_WHOLE, SPELL_PLAIN, e);
    cJSON *schema = json_parse(text, n, e);
    if (!schema)
        return err_wrap(e, "JSON schema"), TERM_NONE;
    term t = schema_term(c->pool, schema, e);
    cJSON_Delete(schema);
    return t;
}

struct constraint *constraint_new(enum constraint_kind kind, const char *text, size_t n,
                                  struct err *e)
{
    struct constraint *c = calloc(1, sizeof(*c));
    if (!c || !(c->pool = term_pool_new(POOL_BYTES))) {
        free(c);
        return err_nomem(e), NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    atomic_init(&c->refs, 1);
    term_budget(c->pool, COMPILE_STEPS);
    c->start = compile(c, kind, text, n, e);
    bool possible = c->start != TERM_NONE && term_possible(c->pool, c->start);
    if (term_spent(c->pool)) {
        err_set(e, ERR_VALIDATION, "the constraint is too complex");
        c->start = TERM_NONE;
    } else if (c->start != TERM_NONE && !possible) {
        err_set(e, ERR_VALIDATION, "no text satisfies the constraint");
        c->start = TERM_NONE;
    }
    if (c->start == TERM_NONE) {
        constraint_unref(c);
        return NULL;
    }
    return c;
}

struct constraint *constraint_ref(struct constraint *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void constraint_unref(struct constraint *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
        return;
    drop(c->next, c->cap, &c->table_bytes);
    drop(c->mask, c->cap, &c->mask_bytes);
    free(c->next);
    free(c->mask);
    free(c->path);
    term_pool_free(c->pool);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

constraint_state constraint_start(const struct constraint *c) { return c->start; }

/* ---------------------------------------------------------------- transitions */

static bool widen(struct constraint *c, uint32_t ***table, size_t cap)
{
    uint32_t **more = realloc(*table, cap * sizeof(*more));
    if (!more)
        return false;
    memset(more + c->cap, 0, (cap - c->cap) * sizeof(*more));
    *table = more;
    return true;
}

/* Room in both tables for term t. */
static bool room(struct constraint *c, term t)
{
    size_t cap = c->cap ? c->cap : 256;
    while (cap <= t)
        cap *= 2;
    if (cap == c->cap)
        return true;
    if (!widen(c, &c->next, cap) || !widen(c, &c->mask, cap))
        return false;
    c->cap = cap;
    return true;
}

static term step(struct constraint *c, term t, uint8_t byte)
{
    if (t == TERM_NONE || !room(c, t))
        return TERM_NONE;
    if (!c->next[t]) {
        if (c->table_bytes > TABLE_BYTES)
            drop(c->next, c->cap, &c->table_bytes);
        c->next[t] = malloc(256 * sizeof(uint32_t));
        if (!c->next[t])
            return TERM_NONE;
        memset(c->next[t], 0xff, 256 * sizeof(uint32_t));
        c->table_bytes += 256 * sizeof(uint32_t);
    }
    uint32_t to = c->next[t][byte];
    if (to != UNKNOWN)
        return to;
    to = term_after(c->pool, t, byte);
    if (!term_spent(c->pool))
        c->next[t][byte] = to;
    return to;
}

constraint_state constraint_next(struct constraint *c, constraint_state at, const void *bytes,
                                 size_t n)
{
    pthread_mutex_lock(&c->lock);
    term_budget(c->pool, MASK_STEPS);
    for (size_t i = 0; i < n && at != CONSTRAINT_DEAD; i++)
        at = step(c, at, ((const uint8_t *)bytes)[i]);
    pthread_mutex_unlock(&c->lock);
    return at;
}

bool constraint_may_end(struct constraint *c, constraint_state at)
{
    pthread_mutex_lock(&c->lock);
    bool end = term_nullable(c->pool, at);
    pthread_mutex_unlock(&c->lock);
    return end;
}

/* ---------------------------------------------------------------- masks */

static void walk(struct constraint *c, const struct flat_trie *t, term from, uint32_t *mask)
{
    c->path[0] = from;
    for (uint32_t i = 0; i < t->n && !term_spent(c->pool);) {
        const struct flat_node *n = &t->node[i];
        term at = c->path[n->depth - 1];
        const uint32_t *next = at < c->cap ? c->next[at] : NULL;
        term to = next && next[n->byte] != UNKNOWN ? next[n->byte] : step(c, at, n->byte);
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
        if (plain_byte((uint8_t)b) && step(c, t, (uint8_t)b) != t)
            return false;
    return true;
}

static uint32_t *new_mask(struct constraint *c, term at, size_t words)
{
    uint32_t *mask = calloc(words, sizeof(*mask));
    if (!mask || !room(c, at))
        return free(mask), NULL;
    if (stays(c, at))
        memcpy(mask, c->tokens->plain_mask, words * sizeof(*mask));
    else
        walk(c, &c->tokens->plain, at, mask);
    walk(c, &c->tokens->rest, at, mask);
    for (uint32_t i = 0; i < c->tokens->n_end; i++) {
        uint32_t id = c->tokens->end[i], bit = 1u << id % 32;
        mask[id / 32] = term_nullable(c->pool, at) ? mask[id / 32] | bit : mask[id / 32] & ~bit;
    }
    return mask;
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
    drop(c->mask, c->cap, &c->mask_bytes);
    return true;
}

static const uint32_t *mask_of(struct constraint *c, term at, const struct token_set *tokens,
                               size_t words, struct err *e)
{
    term_budget(c->pool, MASK_STEPS);
    if (!use_tokens(c, tokens))
        return err_nomem(e), NULL;
    if (at == CONSTRAINT_DEAD)
        return err_set(e, ERR_GENERATION, "the text does not satisfy its constraint"), NULL;
    at = term_horizon(c->pool, at, tokens->longest);
    if (!room(c, at))
        return err_nomem(e), NULL;
    if (!c->mask[at]) {
        if (c->mask_bytes > MASK_BYTES)
            drop(c->mask, c->cap, &c->mask_bytes);
        uint32_t *mask = new_mask(c, at, words);
        if (!mask)
            return err_nomem(e), NULL;
        if (term_spent(c->pool)) {
            free(mask);
            return err_set(e, ERR_GENERATION, "the constraint is too complex"), NULL;
        }
        c->mask[at] = mask;
        c->mask_bytes += words * sizeof(*mask);
    }
    if (term_full(c->pool))
        return err_set(e, ERR_GENERATION, "the constraint needs too much memory"), NULL;
    return c->mask[at];
}

int constraint_mask(struct constraint *c, constraint_state at, const struct token_set *tokens,
                    uint32_t *mask, struct err *e)
{
    size_t words = (tokens->vocab + (size_t)31) / 32;
    pthread_mutex_lock(&c->lock);
    const uint32_t *found = mask_of(c, at, tokens, words, e);
    if (found)
        memcpy(mask, found, words * sizeof(*mask));
    pthread_mutex_unlock(&c->lock);
    if (!found)
        return -1;
    for (size_t i = 0; i < words; i++)
        if (mask[i])
            return 0;
    return err_set(e, ERR_GENERATION, "no token of the vocabulary goes on as the constraint wants");
}
