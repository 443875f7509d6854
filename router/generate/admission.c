#include "router/generate/admission.h"
#include <assert.h>
#include <stdlib.h>

struct admission_key {
    struct admission_key *chain;
    uint64_t name;
    uint32_t n_held; /* never 0 */
};

void admission_init(struct admission *a, uint32_t capacity)
{
    *a = (struct admission){.capacity = capacity};
    pthread_mutex_init(&a->lock, NULL);
}

void admission_free(struct admission *a)
{
    for (uint32_t i = 0; i < ADMISSION_BUCKETS; i++)
        for (struct admission_key *k = a->bucket[i], *next; k; k = next) {
            next = k->chain;
            free(k);
        }
    pthread_mutex_destroy(&a->lock);
}

/* The link that points to its record, or would. */
static struct admission_key **find(struct admission *a, uint64_t name)
{
    struct admission_key **at = &a->bucket[(name ^ name >> 32) % ADMISSION_BUCKETS];
    while (*at && (*at)->name != name)
        at = &(*at)->chain;
    return at;
}

/* How many more permits this key may get (NULL: it holds none). */
static uint32_t room(const struct admission *a, const struct admission_key *k)
{
    uint32_t n_keys = a->n_keys + !k, share = a->capacity / n_keys, held = k ? k->n_held : 0;
    uint32_t of_all = a->capacity > a->n_held ? a->capacity - a->n_held : 0;
    if (!share)
        share = 1;
    uint32_t of_share = share > held ? share - held : 0;
    return of_all > of_share ? of_all : of_share;
}

static uint32_t take(struct admission *a, uint64_t name, uint32_t most)
{
    struct admission_key **at = find(a, name), *k = *at;
    uint32_t n = room(a, k);
    n = n < most ? n : most;
    if (!n)
        return 0;
    if (!k) {
        if (!(k = calloc(1, sizeof(*k))))
            return 0;
        k->name = name;
        *at = k;
        a->n_keys++;
    }
    k->n_held += n;
    a->n_held += n;
    return n;
}

uint32_t admission_take(struct admission *a, uint64_t key, uint32_t most)
{
    pthread_mutex_lock(&a->lock);
    uint32_t n = take(a, key, most);
    pthread_mutex_unlock(&a->lock);
    return n;
}

int admission_refuse(uint64_t key, struct err *e)
{
    return key ? err_set(e, ERR_KEY_LIMIT,
                         "Model is overloaded: the requests of this API key take its share of "
                         "--max-concurrent-requests")
               : err_set(e, ERR_OVERLOADED, "Model is overloaded");
}

void admission_give(struct admission *a, uint64_t key, uint32_t n)
{
    if (!n)
        return;
    pthread_mutex_lock(&a->lock);
    struct admission_key **at = find(a, key), *k = *at;
    assert(k && k->n_held >= n && a->n_held >= n);
    k->n_held -= n;
    a->n_held -= n;
    if (!k->n_held) {
        *at = k->chain;
        a->n_keys--;
        free(k);
    }
    pthread_mutex_unlock(&a->lock);
}

uint32_t admission_held(struct admission *a)
{
    pthread_mutex_lock(&a->lock);
    uint32_t n = a->n_held;
    pthread_mutex_unlock(&a->lock);
    return n;
}
