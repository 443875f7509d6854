#include "router/scheduler/kv_media.h"
#include "common/hash.h"
#include <assert.h>

/* No id of a token has the highest bit. */
static uint64_t key_inside(uint64_t digest, uint32_t index)
{
    return hash_mix(digest ^ hash_mix(index + UINT64_C(1))) | UINT64_C(1) << 63;
}

void kv_media_keys(const struct kv_media *m, const uint32_t *tokens, uint32_t at, uint32_t n,
                   uint64_t *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = tokens[at + i];
    for (uint32_t k = 0; k < m->n && m->v[k].first < at + n; k++) {
        const struct kv_medium *p = &m->v[k];
        const uint32_t end = p->first + p->n < at + n ? p->first + p->n : at + n;
        for (uint32_t i = p->first > at ? p->first : at; i < end; i++)
            out[i - at] = key_inside(p->digest, i - p->first);
    }
}

/* The picture that position `at` stands in, its first token included; NULL: none. */
static const struct kv_medium *around(const struct kv_media *m, uint32_t at)
{
    for (uint32_t k = 0; m->whole && k < m->n && m->v[k].first <= at; k++)
        if (at - m->v[k].first < m->v[k].n)
            return &m->v[k];
    return NULL;
}

uint32_t kv_media_stop(const struct kv_media *m, uint32_t from, uint32_t to)
{
    const struct kv_medium *p = around(m, to);
    assert(from <= to);
    if (!p)
        return to;
    return p->first > from ? p->first : from;
}

uint32_t kv_media_next(const struct kv_media *m, uint32_t at)
{
    const struct kv_medium *p = around(m, at);
    return p ? p->first + p->n : at + 1;
}
