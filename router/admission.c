#include "router/admission.h"
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

/* Where its record is, or would be. */
static struct admission_key **find(struct admission *a, uint64_t name)
{
    struct admission_key **at = &a->bucket[(name ^ name >> 32) % ADMISSION_BUCKETS];
    while (*at && (*at)->name != name)
        at = &(*at)->chain;
    return at;
}

/* In 64 bits: counts come from requests. */
static bool admits(const struct admission *a, const struct admission_key *k, uint32_t n)
{
    uint32_t n_keys = a->n_keys + !k, share = a->capacity / n_keys;
    if ((uint64_t)a->n_held + n <= a->capacity)
        return true;
    return n_keys > 1 && (k ? k->n_held : 0) + (uint64_t)n <= (share ? share : 1);
}

static bool take(struct admission *a, uint64_t name, uint32_t n)
{
    struct admission_key **at = find(a, name), *k = *at;
    if (!admits(a, k, n))
        return false;
    if (!k) {
        if (!(k = calloc(1, sizeof(*k))))
            return false;
        k->name = name;
        *at = k;
        a->n_keys++;
    }
    k->n_held += n;
    a->n_held += n;
    return true;
}

bool admission_take(struct admission *a, uint64_t key, uint32_t n)
{
    if (!n)
        return true;
    pthread_mutex_lock(&a->lock);
    bool ok = take(a, key, n);
    pthread_mutex_unlock(&a->lock);
    return ok;
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
