#include "router/scheduler/kv/media.h"
#include "common/hash.h"
#include <assert.h>

/* No token id has the highest bit set. */
static uint64_t key_inside(uint64_t digest, uint32_t index)
{
    return hash_mix(digest ^ hash_mix(index + UINT64_C(1))) | UINT64_C(1) << 63;
}

uint64_t kv_media_prompt(const struct kv_medium *v, uint32_t n_media, const uint32_t *tokens,
                         uint32_t n)
{
    uint64_t h = hash_mix(n);
    for (uint32_t i = 0; i < n; i++)
        h = hash_mix(h ^ tokens[i]);
    for (uint32_t i = 0; i < n_media; i++)
        h = hash_mix(hash_mix(h ^ v[i].first) ^ v[i].digest);
    return h;
}

void kv_media_keys(const struct kv_media *m, const uint32_t *tokens, uint32_t at, uint32_t n,
                   uint64_t *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = at + i < m->prefix ? key_inside(m->prompt, at + i) : tokens[at + i];
    for (uint32_t k = 0; !m->prefix && k < m->n && m->v[k].first < at + n; k++) {
        const struct kv_medium *p = &m->v[k];
        const uint32_t end = p->first + p->n < at + n ? p->first + p->n : at + n;
        for (uint32_t i = p->first > at ? p->first : at; i < end; i++)
            out[i - at] = key_inside(p->digest, i - p->first);
    }
}

/* Tokens [first, first + n) that a step must not cut; n 0: none. */
struct range {
    uint32_t first, n;
};

/* The range that position `at` is in or at the start of: an image, or the prompt. */
static struct range around(const struct kv_media *m, uint32_t at)
{
    if (m->prefix)
        return (struct range){0, at < m->prefix ? m->prefix : 0};
    for (uint32_t k = 0; m->whole && k < m->n && m->v[k].first <= at; k++)
        if (at - m->v[k].first < m->v[k].n)
            return (struct range){m->v[k].first, m->v[k].n};
    return (struct range){0};
}

uint32_t kv_media_stop(const struct kv_media *m, uint32_t from, uint32_t to)
{
    const struct range r = around(m, to);
    assert(from <= to);
    if (!r.n)
        return to;
    return r.first > from ? r.first : from;
}

uint32_t kv_media_next(const struct kv_media *m, uint32_t at)
{
    const struct range r = around(m, at);
    return r.n ? r.first + r.n : at + 1;
}
