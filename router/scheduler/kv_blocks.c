#include "router/scheduler/kv_blocks.h"
#include "common/hash.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { RESERVED = 1 }; /* block 0 */

struct block {
    uint64_t warm;       /* when it was put on the LRU list; larger is warmer */
    uint32_t ref;        /* tables that hold it */
    uint32_t prev, next; /* LRU list when cached, free list (next only) when free */
    uint32_t chain;      /* next block in the same hash bucket */
    uint32_t parent;     /* KV_NO_BLOCK: first block of a prompt */
    uint32_t bucket, adapter;
    bool indexed;
};

struct kv_blocks {
    struct block *b;
    uint32_t *bucket; /* [n_buckets] heads, KV_NO_BLOCK when empty */
    uint32_t *tok;    /* [n][block_tokens]: what an indexed block holds */
    uint32_t n, n_buckets, block_tokens;
    uint32_t free_head;
    uint32_t lru_head, lru_tail; /* head = coldest */
    uint64_t seed, clock;
    uint32_t era; /* grows when the device forgets: older tables publish nothing */
    struct kv_stats st;
};

struct kv_blocks *kv_new(uint32_t n_blocks, uint32_t block_tokens, uint64_t seed)
{
    struct kv_blocks *kv = calloc(1, sizeof(*kv));
    if (!kv)
        return NULL;
    assert(block_tokens > 0 && n_blocks < UINT32_MAX / 4);
    kv->n = n_blocks;
    kv->block_tokens = block_tokens;
    kv->seed = seed;
    for (kv->n_buckets = 16; kv->n_buckets < 2 * n_blocks;)
        kv->n_buckets *= 2;
    kv->b = calloc(n_blocks + 1, sizeof(*kv->b));
    kv->tok = calloc((size_t)(n_blocks + 1) * block_tokens, sizeof(*kv->tok));
    kv->bucket = malloc(kv->n_buckets * sizeof(*kv->bucket));
    if (!kv->b || !kv->bucket || !kv->tok) {
        kv_free(kv);
        return NULL;
    }
    memset(kv->bucket, 0xff, kv->n_buckets * sizeof(*kv->bucket));
    kv->free_head = kv->lru_head = kv->lru_tail = KV_NO_BLOCK;
    for (uint32_t i = n_blocks; i-- > RESERVED;) { /* low numbers first */
        kv->b[i].next = kv->free_head;
        kv->free_head = i;
    }
    kv->st.total = kv->st.free = n_blocks > RESERVED ? n_blocks - RESERVED : 0;
    return kv;
}

void kv_free(struct kv_blocks *kv)
{
    if (!kv)
        return;
    free(kv->b);
    free(kv->bucket);
    free(kv->tok);
    free(kv);
}

static uint32_t blocks_of(const struct kv_blocks *kv, uint32_t tokens)
{
    return (uint32_t)(((uint64_t)tokens + kv->block_tokens - 1) / kv->block_tokens);
}

/* ------------------------------------------------------------------ the LRU list and the free list
 */
static void lru_push(struct kv_blocks *kv, uint32_t id)
{
    struct block *b = &kv->b[id];
    b->warm = ++kv->clock;
    b->prev = kv->lru_tail;
    b->next = KV_NO_BLOCK;
    if (kv->lru_tail != KV_NO_BLOCK)
        kv->b[kv->lru_tail].next = id;
    else
        kv->lru_head = id;
    kv->lru_tail = id;
    kv->st.cached++;
}

static void lru_drop(struct kv_blocks *kv, uint32_t id)
{
    struct block *b = &kv->b[id];
    if (b->prev != KV_NO_BLOCK)
        kv->b[b->prev].next = b->next;
    else
        kv->lru_head = b->next;
    if (b->next != KV_NO_BLOCK)
        kv->b[b->next].prev = b->prev;
    else
        kv->lru_tail = b->prev;
    kv->st.cached--;
}

static void free_push(struct kv_blocks *kv, uint32_t id)
{
    kv->b[id].next = kv->free_head;
    kv->free_head = id;
    kv->st.free++;
}

/* ------------------------------------------------------------------ the index */
static uint32_t bucket_of(const struct kv_blocks *kv, uint32_t parent, uint32_t adapter,
                          const uint32_t *tok)
{
    uint64_t h = kv->seed ^ ((uint64_t)adapter << 32 | parent);
    for (uint32_t i = 0; i < kv->block_tokens; i++)
        h = ((h ^ tok[i]) * 0x9e3779b97f4a7c15u) ^ h >> 29;
    return (uint32_t)hash_mix(h) & (kv->n_buckets - 1);
}

static uint32_t index_find(const struct kv_blocks *kv, uint32_t parent, uint32_t adapter,
                           const uint32_t *tok)
{
    size_t bytes = kv->block_tokens * sizeof(*tok);
    uint32_t id = kv->bucket[bucket_of(kv, parent, adapter, tok)];
    while (id != KV_NO_BLOCK && (kv->b[id].parent != parent || kv->b[id].adapter != adapter ||
                                 memcmp(kv->tok + (size_t)id * kv->block_tokens, tok, bytes) != 0))
        id = kv->b[id].chain;
    return id;
}

static void index_put(struct kv_blocks *kv, uint32_t id, uint32_t parent, uint32_t adapter,
                      const uint32_t *tok)
{
    struct block *b = &kv->b[id];
    assert(!b->indexed && b->ref > 0);
    memcpy(kv->tok + (size_t)id * kv->block_tokens, tok, kv->block_tokens * sizeof(*tok));
    b->bucket = bucket_of(kv, parent, adapter, tok);
    b->parent = parent;
    b->adapter = adapter;
    b->indexed = true;
    b->chain = kv->bucket[b->bucket];
    kv->bucket[b->bucket] = id;
}

static void index_drop(struct kv_blocks *kv, uint32_t id)
{
    uint32_t *p = &kv->bucket[kv->b[id].bucket];
    while (*p != id)
        p = &kv->b[*p].chain;
    *p = kv->b[id].chain;
    kv->b[id].indexed = false;
}

/* ------------------------------------------------------------------ references */
static void block_hold(struct kv_blocks *kv, uint32_t id)
{
    if (kv->b[id].ref++ == 0) {
        lru_drop(kv, id);
        kv->st.used++;
    }
}

static void block_let_go(struct kv_blocks *kv, uint32_t id)
{
    struct block *b = &kv->b[id];
    assert(id >= RESERVED && b->ref > 0);
    if (--b->ref > 0)
        return;
    kv->st.used--;
    if (b->indexed)
        lru_push(kv, id);
    else
        free_push(kv, id);
}

static uint32_t block_take(struct kv_blocks *kv) /* caller checked that there is one */
{
    uint32_t id = kv->free_head;
    if (id != KV_NO_BLOCK) {
        kv->free_head = kv->b[id].next;
        kv->st.free--;
    } else {
        id = kv->lru_head;
        assert(id != KV_NO_BLOCK);
        lru_drop(kv, id);
        index_drop(kv, id);
        kv->st.evictions++;
    }
    kv->b[id].ref = 1;
    kv->st.used++;
    return id;
}

static bool table_room(struct kv_table *t, uint32_t blocks)
{
    if (blocks <= t->cap)
        return true;
    uint32_t cap = blocks > 2 * t->cap ? blocks : 2 * t->cap;
    uint32_t *p = realloc(t->ids, cap * sizeof(*p));
    if (!p)
        return false;
    t->ids = p;
    t->cap = cap;
    return true;
}

/* ------------------------------------------------------------------ the interface */
bool kv_could_fit(const struct kv_blocks *kv, uint32_t n)
{
    return blocks_of(kv, n) <= kv->st.total;
}

bool kv_may_fit(const struct kv_blocks *kv, uint32_t n_prompt, uint32_t n_reserve)
{
    uint32_t need = blocks_of(kv, n_reserve);
    uint32_t hits = n_prompt > 0 ? (n_prompt - 1) / kv->block_tokens : 0;
    return need <= kv->st.total &&
           need - (hits < need ? hits : need) <= kv->st.free + kv->st.cached;
}

bool kv_admit(struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key, bool share,
              uint32_t n_reserve)
{
    size_t bt = kv->block_tokens;
    uint32_t need = blocks_of(kv, n_reserve), hit = 0, revived = 0, parent = KV_NO_BLOCK;

    assert(t->len == 0 && key->n <= n_reserve);
    if (need > kv->st.total || !table_room(t, need))
        return false;
    /* The block with the last prompt token is never shared: at least one token must be computed
     * to produce logits, and recomputing it in place would write under another reader. */
    for (; share && (hit + 1) * bt < key->n; hit++) {
        parent = index_find(kv, parent, key->adapter, key->tokens + hit * bt);
        if (parent == KV_NO_BLOCK)
            break;
        t->ids[hit] = parent;
        revived += kv->b[parent].ref == 0;
    }
    if (kv->st.free + kv->st.cached - revived < need - hit)
        return false;
    for (uint32_t i = 0; i < hit; i++)
        block_hold(kv, t->ids[i]);
    for (uint32_t i = hit; i < need; i++)
        t->ids[i] = block_take(kv);
    t->len = need;
    t->n_sealed = hit;
    t->n_cached = hit * kv->block_tokens;
    t->adapter = key->adapter;
    t->era = kv->era;
    t->shares = share;
    kv->st.hits += hit;
    kv->st.misses += need - hit;
    return true;
}

bool kv_grow(struct kv_blocks *kv, struct kv_table *t, uint32_t n)
{
    uint32_t need = blocks_of(kv, n);
    if (need <= t->len)
        return true;
    if (need - t->len > kv->st.free + kv->st.cached || !table_room(t, need))
        return false;
    while (t->len < need)
        t->ids[t->len++] = block_take(kv);
    return true;
}

void kv_commit(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n)
{
    size_t bt = kv->block_tokens;
    if (!t->shares || t->era != kv->era)
        return;
    for (uint32_t i = t->n_sealed; i < t->len && (i + 1) * bt <= n; i++) {
        uint32_t parent = i > 0 ? t->ids[i - 1] : KV_NO_BLOCK;
        if (index_find(kv, parent, t->adapter, tokens + i * bt) != KV_NO_BLOCK)
            return; /* the shard reads our copy: we cannot swap it for the other one now */
        index_put(kv, t->ids[i], parent, t->adapter, tokens + i * bt);
        t->n_sealed++;
    }
}

/* Nobody reads our blocks any more, so that a copy can give way to the block that was published
 * first, and what comes after it can be published under that one. */
static void commit_or_replace(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens,
                              uint32_t n)
{
    size_t bt = kv->block_tokens;
    for (uint32_t i = t->n_sealed; i < t->len && (i + 1) * bt <= n; i++) {
        uint32_t parent = i > 0 ? t->ids[i - 1] : KV_NO_BLOCK;
        uint32_t twin = index_find(kv, parent, t->adapter, tokens + i * bt);
        if (twin == KV_NO_BLOCK) {
            index_put(kv, t->ids[i], parent, t->adapter, tokens + i * bt);
        } else {
            block_hold(kv, twin); /* before the copy goes: twin may be cached */
            block_let_go(kv, t->ids[i]);
            t->ids[i] = twin;
        }
        t->n_sealed++;
    }
}

void kv_release(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n)
{
    if (t->shares && t->era == kv->era)
        commit_or_replace(kv, t, tokens, n);
    kv->st.releases += t->len > 0;
    kv_undo(kv, t);
}

void kv_undo(struct kv_blocks *kv, struct kv_table *t)
{
    for (uint32_t i = t->len; i-- > 0;) /* tail first: children get colder than their parents */
        block_let_go(kv, t->ids[i]);
    free(t->ids);
    *t = (struct kv_table){0};
}

void kv_forget(struct kv_blocks *kv)
{
    while (kv->lru_head != KV_NO_BLOCK) {
        uint32_t id = kv->lru_head;
        lru_drop(kv, id);
        index_drop(kv, id);
        free_push(kv, id);
    }
    for (uint32_t i = RESERVED; i < kv->n; i++)
        if (kv->b[i].indexed)
            index_drop(kv, i);
    kv->era++;
    kv->st.releases++;
}

struct kv_stats kv_stats(const struct kv_blocks *kv) { return kv->st; }

/* ------------------------------------------------------------------ invariants */
static void check_block(const struct kv_blocks *kv, uint32_t id)
{
    const struct block *b = &kv->b[id];
    if (!b->indexed)
        return;
    uint32_t in = kv->bucket[b->bucket];
    while (in != id) {
        assert(in != KV_NO_BLOCK);
        in = kv->b[in].chain;
    }
    /* exactly one block per content: the index finds this one */
    assert(index_find(kv, b->parent, b->adapter, kv->tok + (size_t)id * kv->block_tokens) == id);
    if (b->parent == KV_NO_BLOCK)
        return;
    const struct block *p = &kv->b[b->parent];
    assert(p->indexed && p->adapter == b->adapter);
    assert(p->ref > 0 || (b->ref == 0 && p->warm > b->warm));
}

void kv_check(const struct kv_blocks *kv)
{
    uint32_t n_free = 0, n_cached = 0, n_used = 0;
    for (uint32_t i = kv->free_head; i != KV_NO_BLOCK; i = kv->b[i].next) {
        assert(i >= RESERVED && kv->b[i].ref == 0 && !kv->b[i].indexed);
        n_free++;
    }
    uint64_t warm = 0;
    for (uint32_t i = kv->lru_head; i != KV_NO_BLOCK; i = kv->b[i].next) {
        assert(i >= RESERVED && kv->b[i].ref == 0 && kv->b[i].indexed && kv->b[i].warm > warm);
        warm = kv->b[i].warm;
        n_cached++;
    }
    for (uint32_t i = RESERVED; i < kv->n; i++) {
        n_used += kv->b[i].ref > 0;
        check_block(kv, i);
    }
    assert(n_free == kv->st.free && n_cached == kv->st.cached && n_used == kv->st.used);
    assert(n_free + n_cached + n_used == kv->st.total);
}
