#include "common/tokenizer/vocab.h"
#include "common/clock.h"
#include "common/hash.h"
#include <stdlib.h>
#include <string.h>

void vocab_free(struct vocab *v)
{
    buf_free(&v->text);
    free(v->tok);
    free(v->slot);
    *v = (struct vocab){0};
}

/* Eight bytes per step: a load hashes a million texts. */
static uint64_t hash_text(uint64_t seed, const char *s, size_t n)
{
    uint64_t h = seed ^ n, x = 0;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&x, s, 8);
        h = hash_mix(h ^ x);
    }
    x = 0;
    memcpy(&x, s, n);
    return hash_mix(h ^ x);
}

static bool same(const struct vocab *v, uint32_t id, const char *s, size_t n)
{
    return v->tok[id].len == n && memcmp(v->text.p + v->tok[id].at, s, n) == 0;
}

/* The slot of a text, or the free slot for it. */
static uint32_t probe(const struct vocab *v, uint32_t h, const char *s, size_t n)
{
    uint32_t i = h & v->mask;
    while (v->slot[i].id != NO_ID && !(v->slot[i].hash == h && same(v, v->slot[i].id, s, n)))
        i = (i + 1) & v->mask;
    return i;
}

static int set_slots(struct vocab *v, uint32_t cap)
{
    if (!v->seed)
        v->seed = (uint64_t)clock_ns() ^ (uintptr_t)v;
    struct vocab_slot *old = v->slot, *new = malloc(cap * sizeof *new);
    if (!new)
        return -1;
    memset(new, 0xFF, cap * sizeof *new);
    for (uint32_t i = 0; old && i <= v->mask; i++) {
        uint32_t at = old[i].hash & (cap - 1);
        if (old[i].id == NO_ID)
            continue;
        while (new[at].id != NO_ID)
            at = (at + 1) & (cap - 1);
        new[at] = old[i];
    }
    free(old);
    v->slot = new;
    v->mask = cap - 1;
    return 0;
}

/* A miss probes 8 slots on average at this load, which are one line of a cache. */
static bool full(uint32_t count, uint32_t cap) { return count >= cap / 4 * 3; }

static int grow_slots(struct vocab *v) { return set_slots(v, v->slot ? (v->mask + 1) * 2 : 1024); }

static int set_ids(struct vocab *v, uint32_t cap)
{
    struct vocab_at *tok = realloc(v->tok, cap * sizeof *tok);
    if (!tok)
        return -1;
    memset(tok + v->cap, 0xFF, (cap - v->cap) * sizeof *tok);
    v->tok = tok;
    v->cap = cap;
    return 0;
}

static int grow_ids(struct vocab *v, uint32_t id)
{
    uint32_t cap = v->cap ? v->cap : 1024;
    while (cap <= id)
        cap *= 2;
    return set_ids(v, cap);
}

int vocab_reserve(struct vocab *v, uint32_t n, size_t bytes)
{
    uint32_t slots = 1024;
    if (n > VOCAB_MAX_ID) /* vocab_put() refuses it, with a message */
        n = VOCAB_MAX_ID;
    while (full(n, slots))
        slots *= 2;
    if ((!v->slot || slots > v->mask + 1) && set_slots(v, slots) != 0)
        return -1;
    if (n > v->cap && set_ids(v, n) != 0)
        return -1;
    return buf_reserve(&v->text, bytes + n);
}

int vocab_put(struct vocab *v, const char *s, size_t n, uint32_t id, struct err *e)
{
    if (id >= VOCAB_MAX_ID)
        return err_set(e, ERR_VALIDATION, "token id %u is past %d", id, VOCAB_MAX_ID);
    if (v->text.len + n >= UINT32_MAX)
        return err_set(e, ERR_VALIDATION, "more than 4 GiB of token texts");
    if (id >= v->cap && grow_ids(v, id) != 0)
        return err_nomem(e);
    if ((!v->slot || full(v->count, v->mask + 1)) && grow_slots(v) != 0)
        return err_nomem(e);
    uint32_t h = (uint32_t)hash_text(v->seed, s, n), i = probe(v, h, s, n);
    v->tok[id] = (struct vocab_at){(uint32_t)v->text.len, (uint32_t)n};
    buf_add(&v->text, s, n);
    buf_ch(&v->text, 0);
    if (v->text.oom)
        return err_nomem(e);
    v->count += v->slot[i].id == NO_ID;
    v->puts++;
    v->slot[i] = (struct vocab_slot){h, id};
    if (id >= v->size)
        v->size = id + 1;
    return 0;
}

uint32_t vocab_find(const struct vocab *v, const char *s, size_t n)
{
    return v->slot ? v->slot[probe(v, (uint32_t)hash_text(v->seed, s, n), s, n)].id : NO_ID;
}

enum { AT_ONCE = 64 };

/* Three loads that depend on each other: slot, place of the text, text. */
static void find_some(const struct vocab *v, const struct vocab_key *key, size_t n, uint32_t *id)
{
    uint32_t h[AT_ONCE], guess[AT_ONCE];
    for (size_t k = 0; k < n; k++) {
        h[k] = (uint32_t)hash_text(v->seed, key[k].s, key[k].n);
        __builtin_prefetch(&v->slot[h[k] & v->mask]);
    }
    for (size_t k = 0; k < n; k++) {
        const struct vocab_slot *s = &v->slot[h[k] & v->mask];
        guess[k] = s->hash == h[k] ? s->id : NO_ID;
        if (guess[k] != NO_ID)
            __builtin_prefetch(&v->tok[guess[k]]);
    }
    for (size_t k = 0; k < n; k++)
        if (guess[k] != NO_ID)
            __builtin_prefetch(v->text.p + v->tok[guess[k]].at);
    for (size_t k = 0; k < n; k++)
        id[k] = v->slot[probe(v, h[k], key[k].s, key[k].n)].id;
}

void vocab_find_all(const struct vocab *v, const struct vocab_key *key, size_t n, uint32_t *id)
{
    for (size_t at = 0; at < n; at += AT_ONCE) {
        const size_t some = n - at < AT_ONCE ? n - at : AT_ONCE;
        if (v->slot)
            find_some(v, key + at, some, id + at);
        else
            memset(id + at, 0xFF, some * sizeof(*id));
    }
}

const char *vocab_text(const struct vocab *v, uint32_t id, size_t *n)
{
    *n = 0;
    if (id >= v->size || v->tok[id].at == NO_ID)
        return NULL;
    *n = v->tok[id].len;
    return v->text.p + v->tok[id].at;
}
