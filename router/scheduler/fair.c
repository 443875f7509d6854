#include "router/scheduler/fair.h"
#include <assert.h>
#include <stdlib.h>

enum { N_BUCKETS = sizeof(((struct fair *)0)->bucket) / sizeof(struct fair_key *) };

static struct fair_key **bucket_of(struct fair *f, uint64_t name)
{
    return &f->bucket[(name ^ name >> 32) % N_BUCKETS];
}

/* ------------------------------------------------------------------ keys */

/* Frees idle keys to make space for another: first those without debt, whose account carries no
 * information, then all. */
static void forget(struct fair *f)
{
    for (int owing = 0; owing < 2 && f->n_keys >= FAIR_KEYS; owing++)
        for (uint32_t i = 0; i < N_BUCKETS; i++)
            for (struct fair_key **at = &f->bucket[i]; *at;) {
                struct fair_key *k = *at;
                if (k->n_items > 0 || (!owing && k->served > f->floor)) {
                    at = &k->chain;
                    continue;
                }
                *at = k->chain;
                free(k);
                f->n_keys--;
            }
}

void fair_free(struct fair *f)
{
    for (uint32_t i = 0; i < N_BUCKETS; i++)
        for (struct fair_key *k = f->bucket[i], *next; k; k = next) {
            next = k->chain;
            assert(k->n_items == 0);
            free(k);
        }
    *f = (struct fair){0};
}

static struct fair_key *key_of(struct fair *f, uint64_t name)
{
    struct fair_key *k = *bucket_of(f, name);
    while (k && k->name != name)
        k = k->chain;
    if (k)
        return k;
    if (f->n_keys >= FAIR_KEYS)
        forget(f);
    if (!(k = calloc(1, sizeof(*k))))
        return NULL;
    struct fair_key **at = bucket_of(f, name);
    k->name = name;
    k->chain = *at;
    *at = k;
    f->n_keys++;
    return k;
}

static void raise_floor(struct fair *f)
{
    uint64_t least = UINT64_MAX;
    for (const struct fair_key *k = f->present; k; k = k->next)
        least = k->served < least ? k->served : least;
    if (f->present && least > f->floor)
        f->floor = least;
}

bool fair_enter(struct fair *f, struct fair_item *it, uint64_t name)
{
    assert(!it->key);
    struct fair_key *k = key_of(f, name);
    if (!k)
        return false;
    it->key = k;
    if (k->n_items++ > 0)
        return true;
    raise_floor(f);
    k->served = k->served > f->floor ? k->served : f->floor;
    k->prev = NULL;
    k->next = f->present;
    if (f->present)
        f->present->prev = k;
    f->present = k;
    return true;
}

void fair_leave(struct fair *f, struct fair_item *it)
{
    struct fair_key *k = it->key;
    it->key = NULL;
    assert(!k || k->n_items > 0);
    if (!k || --k->n_items > 0)
        return;
    raise_floor(f); /* before it is removed: the last key's account becomes the floor */
    *(k->prev ? &k->prev->next : &f->present) = k->next;
    if (k->next)
        k->next->prev = k->prev;
}

uint32_t fair_present(const struct fair *f)
{
    uint32_t n = 0;
    for (const struct fair_key *k = f->present; k; k = k->next)
        n++;
    return n;
}

bool fair_newcomer(const struct fair_item *it)
{
    assert(it->key->n_items >= it->key->n_waiting);
    return it->key->n_items == it->key->n_waiting;
}

/* ------------------------------------------------------------------ queues */

static bool before(const struct fair_item *a, const struct fair_item *b)
{
    return a->priority < b->priority || (a->priority == b->priority && a->order < b->order);
}

void fair_wait(struct fair *f, struct fair_item *it)
{
    struct fair_key *k = it->key;
    assert(k && k->n_items > 0);
    struct fair_item *after = k->tail, *older = k->newest;
    while (after && before(it, after))
        after = after->prev;
    it->prev = after;
    it->next = after ? after->next : k->head;
    *(after ? &after->next : &k->head) = it;
    *(it->next ? &it->next->prev : &k->tail) = it;
    while (older && older->order > it->order)
        older = older->older;
    it->older = older;
    it->newer = older ? older->newer : k->oldest;
    *(older ? &older->newer : &k->oldest) = it;
    *(it->newer ? &it->newer->older : &k->newest) = it;
    k->n_waiting++;
    f->n_waiting++;
}

void fair_unwait(struct fair *f, struct fair_item *it)
{
    struct fair_key *k = it->key;
    assert(f->n_waiting > 0 && k->n_waiting > 0);
    *(it->prev ? &it->prev->next : &k->head) = it->next;
    *(it->next ? &it->next->prev : &k->tail) = it->prev;
    *(it->older ? &it->older->newer : &k->oldest) = it->newer;
    *(it->newer ? &it->newer->older : &k->newest) = it->older;
    it->prev = it->next = it->older = it->newer = NULL;
    k->n_waiting--;
    f->n_waiting--;
}

/* ------------------------------------------------------------------ order */

struct fair_item *fair_first(struct fair *f)
{
    f->scan++;
    for (struct fair_key *k = f->present; k; k = k->next) {
        k->cursor = k->head;
        k->oldest_due = k->since_oldest + 1 >= FAIR_OLDEST_EVERY;
    }
    return fair_next(f);
}

/* The key's next item in this scan. */
static struct fair_item *offer(struct fair *f, struct fair_key *k)
{
    if (k->oldest_due && k->oldest && k->oldest->offered != f->scan)
        return k->oldest;
    while (k->cursor && k->cursor->offered == f->scan)
        k->cursor = k->cursor->next;
    return k->cursor;
}

/* Of two keys' next items: the smaller account first, then the key that runs nothing. */
static bool goes_first(const struct fair_item *a, const struct fair_item *b)
{
    if (a->key->served != b->key->served)
        return a->key->served < b->key->served;
    if (fair_newcomer(a) != fair_newcomer(b))
        return fair_newcomer(a);
    return a->order < b->order;
}

static struct fair_item *next_of(struct fair *f, bool newcomers)
{
    struct fair_item *best = NULL;
    for (struct fair_key *k = f->present; k; k = k->next) {
        struct fair_item *it = newcomers && k->n_items > k->n_waiting ? NULL : offer(f, k);
        if (it && (!best || goes_first(it, best)))
            best = it;
    }
    if (best)
        best->offered = f->scan;
    return best;
}

struct fair_item *fair_next(struct fair *f) { return next_of(f, false); }

struct fair_item *fair_next_newcomer(struct fair *f) { return next_of(f, true); }

void fair_charge(struct fair_item *it, int64_t tokens)
{
    if (it->key)
        it->key->served += (uint64_t)tokens;
}

void fair_joins(struct fair_item *it)
{
    struct fair_key *k = it->key;
    k->since_oldest = it == k->oldest ? 0 : k->since_oldest + 1;
}
