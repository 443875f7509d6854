#include "router/fleet/prefixes.h"
#include "common/hash.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct prefix_node { /* links: 1 + index; 0: none */
    uint64_t hash;
    uint32_t chain, warmer, colder;
};

bool prefixes_init(struct prefixes *p, uint32_t n_blocks)
{
    uint32_t cap = n_blocks < PREFIXES_MIN   ? PREFIXES_MIN
                   : n_blocks > PREFIXES_MAX ? PREFIXES_MAX
                                             : n_blocks;
    *p = (struct prefixes){.cap = cap, .n_buckets = 1};
    while (p->n_buckets < cap)
        p->n_buckets *= 2;
    p->v = calloc(cap, sizeof(*p->v));
    p->bucket = calloc(p->n_buckets, sizeof(*p->bucket));
    if (p->v && p->bucket)
        return true;
    prefixes_free(p);
    return false;
}

void prefixes_free(struct prefixes *p)
{
    free(p->v);
    free(p->bucket);
    *p = (struct prefixes){0};
}

void prefixes_clear(struct prefixes *p)
{
    if (p->bucket)
        memset(p->bucket, 0, p->n_buckets * sizeof(*p->bucket));
    p->n = p->warmest = p->coldest = 0;
}

static uint32_t *bucket_of(const struct prefixes *p, uint64_t hash)
{
    return &p->bucket[hash & (p->n_buckets - 1)];
}

static uint32_t find(const struct prefixes *p, uint64_t hash)
{
    uint32_t k = p->cap ? *bucket_of(p, hash) : 0;
    while (k && p->v[k - 1].hash != hash)
        k = p->v[k - 1].chain;
    return k;
}

uint32_t prefixes_match(const struct prefixes *p, const uint64_t *hashes, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && find(p, hashes[i]))
        i++;
    return i;
}

static void unlink_node(struct prefixes *p, uint32_t k)
{
    struct prefix_node *x = &p->v[k - 1];
    *(x->warmer ? &p->v[x->warmer - 1].colder : &p->warmest) = x->colder;
    *(x->colder ? &p->v[x->colder - 1].warmer : &p->coldest) = x->warmer;
}

static void make_warmest(struct prefixes *p, uint32_t k)
{
    struct prefix_node *x = &p->v[k - 1];
    x->warmer = 0;
    x->colder = p->warmest;
    *(p->warmest ? &p->v[p->warmest - 1].warmer : &p->coldest) = k;
    p->warmest = k;
}

/* A node outside all lists: a new one, or the least recently used. */
static uint32_t take_node(struct prefixes *p)
{
    if (p->n < p->cap)
        return ++p->n;
    uint32_t k = p->coldest, *at = bucket_of(p, p->v[k - 1].hash);
    unlink_node(p, k);
    while (*at != k) {
        assert(*at);
        at = &p->v[*at - 1].chain;
    }
    *at = p->v[k - 1].chain;
    return k;
}

void prefixes_put(struct prefixes *p, const uint64_t *hashes, uint32_t n)
{
    n = n < p->cap ? n : p->cap;
    while (n-- > 0) {
        uint32_t k = find(p, hashes[n]);
        if (k) {
            unlink_node(p, k);
        } else {
            k = take_node(p);
            uint32_t *at = bucket_of(p, hashes[n]);
            p->v[k - 1] = (struct prefix_node){.hash = hashes[n], .chain = *at};
            *at = k;
        }
        make_warmest(p, k);
    }
}

/* Hash of the keys of ids[at .. at + n) and of all before. */
static uint64_t hash_keys(uint64_t h, const struct kv_media *media, const uint32_t *ids,
                          uint32_t at, uint32_t n)
{
    uint64_t key[64];
    while (n > 0) {
        const uint32_t now = n < 64 ? n : 64;
        kv_media_keys(media, ids, at, now, key);
        for (uint32_t i = 0; i < now; i++)
            h = hash_mix(h ^ key[i]);
        at += now;
        n -= now;
    }
    return h;
}

uint32_t prefixes_hash(const char *adapter, uint64_t salt, const struct kv_media *media,
                       const uint32_t *ids, uint32_t n, uint32_t block, uint64_t *out)
{
    uint64_t h = hash_bytes(salt, adapter ? adapter : "", adapter ? strlen(adapter) : 0);
    uint32_t k = 0;
    out[k++] = h;
    for (uint32_t at = 0; block && n > 0 && at + block <= n - 1; at += block)
        out[k++] = h = hash_keys(h, media, ids, at, block);
    return k;
}
