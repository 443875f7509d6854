#include "router/scheduler/kv/blocks.h"
#include "common/hash.h"
#include "router/scheduler/kv/impl.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { RESERVED = 1 }; /* block 0 */

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
    kv->keys = calloc((size_t)(n_blocks + 1) * block_tokens, sizeof(*kv->keys));
    kv->wanted = calloc(block_tokens, sizeof(*kv->wanted));
    kv->bucket = malloc(kv->n_buckets * sizeof(*kv->bucket));
    if (!kv->b || !kv->bucket || !kv->keys || !kv->wanted ||
        !kv_order_init(&kv->order, n_blocks, seed)) {
        kv_free(kv);
        return NULL;
    }
    memset(kv->bucket, 0xff, kv->n_buckets * sizeof(*kv->bucket));
    kv->free_head = kv->lru_head = kv->lru_tail = KV_NO_BLOCK;
    for (uint32_t i = n_blocks; i-- > RESERVED;) { /* low numbers are handed out first */
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
    free(kv->keys);
    free(kv->wanted);
    free(kv->chains);
    free(kv->spill);
    kv_order_free(&kv->order);
    cells_free(kv->cells);
    windows_free(kv->windows);
    free(kv);
}

void kv_copying(struct kv_blocks *kv, bool on) { kv->copies = on; }

uint32_t kv_blocks_of(const struct kv_blocks *kv, uint32_t tokens)
{
    return (uint32_t)(((uint64_t)tokens + kv->block_tokens - 1) / kv->block_tokens);
}

/* ------------------------------------------------------------------ the LRU list and the free list
 */
static void lru_push(struct kv_blocks *kv, uint32_t id)
{
    struct block *b = &kv->b[id];
    assert(b->indexed && b->ref == 0);
    b->warm = ++kv->clock;
    b->prev = kv->lru_tail;
    b->next = KV_NO_BLOCK;
    if (kv->lru_tail != KV_NO_BLOCK)
        kv->b[kv->lru_tail].next = id;
    else
        kv->lru_head = id;
    kv->lru_tail = id;
    kv->st.cached++;
    if (kv->spill)
        kv_spill_note(kv, id);
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
    assert(kv->st.cached > 0);
    kv->st.cached--;
}

static void free_push(struct kv_blocks *kv, uint32_t id)
{
    assert(id >= RESERVED && kv->b[id].ref == 0 && !kv->b[id].indexed);
    assert(!kv->windows || !windows_of(kv->windows, id));
    kv->b[id].next = kv->free_head;
    kv->free_head = id;
    kv->st.free++;
}

/* ------------------------------------------------------------------ the index */
uint64_t kv_hash(const struct kv_blocks *kv, uint32_t parent, uint64_t space, const uint64_t *keys)
{
    uint64_t h = kv->seed ^ hash_mix(space) ^ parent;
    for (uint32_t i = 0; i < kv->block_tokens; i++)
        h = ((h ^ keys[i]) * 0x9e3779b97f4a7c15u) ^ h >> 29;
    return hash_mix(h);
}

static uint32_t bucket_of(const struct kv_blocks *kv, uint32_t parent, uint64_t space,
                          const uint64_t *keys)
{
    return (uint32_t)kv_hash(kv, parent, space, keys) & (kv->n_buckets - 1);
}

uint32_t kv_index_find(const struct kv_blocks *kv, uint32_t parent, uint64_t space,
                       const uint64_t *keys)
{
    size_t bytes = kv->block_tokens * sizeof(*keys);
    uint32_t id = kv->bucket[bucket_of(kv, parent, space, keys)];
    while (id != KV_NO_BLOCK &&
           (kv->b[id].parent != parent || kv->b[id].space != space ||
            memcmp(kv->keys + (size_t)id * kv->block_tokens, keys, bytes) != 0))
        id = kv->b[id].chain;
    return id;
}

static void index_put(struct kv_blocks *kv, uint32_t id, const struct kv_content *c)
{
    struct block *b = &kv->b[id];
    uint64_t *keys = kv->keys + (size_t)id * kv->block_tokens;
    assert(!b->indexed && b->ref > 0 && c->n > 0 && c->n <= kv->block_tokens);
    memmove(keys, c->keys, c->n * sizeof(*keys));
    b->parent = c->parent;
    b->space = c->space;
    b->fill = c->n;
    b->indexed = true;
    b->local = c->local;
    b->stored = 0;
    if (kv->chains && b->fill == kv->block_tokens)
        kv_chain_block(kv, id);
    kv_order_put(
        &kv->order, id,
        &(struct kv_content){.parent = c->parent, .space = c->space, .keys = keys, .n = c->n});
    if (b->fill < kv->block_tokens)
        return;
    b->bucket = bucket_of(kv, b->parent, b->space, keys);
    b->chain = kv->bucket[b->bucket];
    kv->bucket[b->bucket] = id;
}

static void index_drop(struct kv_blocks *kv, uint32_t id)
{
    struct block *b = &kv->b[id];
    assert(b->indexed && b->fill > 0);
    b->indexed = false;
    if (kv->chains)
        kv_chain_drop(kv, id);
    kv_order_drop(&kv->order, id);
    if (kv->cells)
        cells_drop(kv->cells, id);
    if (kv->windows)
        windows_drop(kv->windows, id);
    if (b->fill < kv->block_tokens)
        return;
    uint32_t *p = &kv->bucket[b->bucket];
    while (*p != id) {
        assert(*p != KV_NO_BLOCK);
        p = &kv->b[*p].chain;
    }
    *p = b->chain;
}

/* Indexes block `id` with the computed content `c`. False: the index has that content already. A
 * block whose content is a prefix of it, possibly `id` itself, is removed from the index. */
static bool publish(struct kv_blocks *kv, uint32_t id, const struct kv_content *c)
{
    struct kv_near near = kv_order_near(&kv->order, c);
    if (kv_order_common(&kv->order, near.after, c) == c->n)
        return near.after == id;
    uint32_t old = near.before;
    if (old != KV_NO_BLOCK && kv_order_common(&kv->order, old, c) == kv->b[old].fill) {
        index_drop(kv, old);
        if (kv->b[old].ref == 0) {
            lru_drop(kv, old);
            free_push(kv, old);
        }
    }
    index_put(kv, id, c);
    return true;
}

/* ------------------------------------------------------------------ references */
void kv_block_hold(struct kv_blocks *kv, uint32_t id)
{
    assert(id >= RESERVED && id != KV_NO_BLOCK);
    if (kv->b[id].ref++ == 0) {
        lru_drop(kv, id);
        kv->st.used++;
    }
}

void kv_block_release(struct kv_blocks *kv, uint32_t id)
{
    struct block *b = &kv->b[id];
    assert(id >= RESERVED && b->ref > 0);
    if (--b->ref > 0)
        return;
    assert(kv->st.used > 0);
    kv->st.used--;
    if (b->indexed)
        lru_push(kv, id);
    else
        free_push(kv, id);
}

uint32_t kv_block_take(struct kv_blocks *kv) /* the caller has checked that one is available */
{
    uint32_t id = kv->free_head;
    if (id != KV_NO_BLOCK) {
        kv->free_head = kv->b[id].next;
        kv->st.free--;
    } else {
        id = kv->lru_head;
        assert(id != KV_NO_BLOCK);
        lru_drop(kv, id);
        kv_miss_evict(kv, id);
        index_drop(kv, id);
        kv->n_spill_lost += kv->b[id].queued;
        kv->st.evictions++;
    }
    assert(kv->b[id].ref == 0 && !kv->b[id].indexed);
    kv->b[id].ref = 1;
    kv->st.used++;
    return id;
}

bool kv_table_room(const struct kv_blocks *kv, struct kv_table *t, uint32_t blocks)
{
    if (blocks <= t->cap)
        return true;
    uint32_t cap = blocks > 2 * t->cap ? blocks : 2 * t->cap;
    uint32_t *p = realloc(t->ids, cap * sizeof(*p));
    if (!p)
        return false;
    t->ids = p;
    if (kv->windows && !(p = realloc(t->windows, cap * sizeof(*p))))
        return false;
    t->windows = kv->windows ? p : NULL;
    t->cap = cap;
    return true;
}

/* ------------------------------------------------------------------ public functions */
uint32_t kv_shared(const struct kv_blocks *kv, const struct kv_table *t)
{
    uint32_t n = 0;
    while (n < t->len && kv->b[t->ids[n]].ref > 1)
        n++;
    return n;
}

bool kv_grow(struct kv_blocks *kv, struct kv_table *t, uint32_t n)
{
    uint32_t need = kv_blocks_of(kv, n);
    if (need <= t->len)
        return true;
    if (need - t->len > kv->st.free + kv->st.cached || !kv_table_room(kv, t, need))
        return false;
    while (t->len < need)
        t->ids[t->len++] = kv_block_take(kv);
    return true;
}

/* Content of block i: tokens [i * block_tokens, n), at most one block. Valid until the next
 * call. */
static struct kv_content content(const struct kv_blocks *kv, const struct kv_table *t, uint32_t i,
                                 const uint32_t *tokens, uint32_t n)
{
    size_t at = (size_t)i * kv->block_tokens;
    uint32_t left = n > at ? n - (uint32_t)at : 0;
    left = left < kv->block_tokens ? left : kv->block_tokens;
    if (left > 0)
        kv_media_keys(&t->media, tokens, (uint32_t)at, left, kv->wanted);
    return (struct kv_content){.parent = i > 0 ? t->ids[i - 1] : KV_NO_BLOCK,
                               .space = t->space,
                               .keys = kv->wanted,
                               .n = left,
                               .local = t->local};
}

/* Publishes the block after the sealed ones, up to its last computed token. */
static void publish_begun(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens,
                          uint32_t n)
{
    if (!kv->copies || t->n_sealed >= t->len)
        return;
    struct kv_content c = content(kv, t, t->n_sealed, tokens, n);
    if (c.n > 0 && c.n < kv->block_tokens)
        publish(kv, t->ids[t->n_sealed], &c);
}

void kv_commit(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n)
{
    if (kv->windows)
        kv_window_note(kv, t, n);
    if (!t->shares || t->era != kv->era)
        return;
    for (; t->n_sealed < t->len; t->n_sealed++) {
        struct kv_content c = content(kv, t, t->n_sealed, tokens, n);
        if (c.n < kv->block_tokens)
            break;
        if (!publish(kv, t->ids[t->n_sealed], &c))
            return; /* steps in flight read our copy: it cannot be replaced now */
    }
    publish_begun(kv, t, tokens, n);
}

/* No step reads these blocks any more. So a duplicate is replaced by the block published first, and
 * what follows is published under that one. */
static void commit_or_replace(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens,
                              uint32_t n)
{
    for (; t->n_sealed < t->len; t->n_sealed++) {
        uint32_t i = t->n_sealed;
        struct kv_content c = content(kv, t, i, tokens, n);
        if (c.n < kv->block_tokens)
            break;
        if (publish(kv, t->ids[i], &c))
            continue;
        uint32_t same = kv_index_find(kv, c.parent, c.space, c.keys);
        /* before the duplicate is released: `same` may be a cached block */
        kv_block_hold(kv, same);
        if (kv->windows)
            kv_window_replace(kv, t, i, same);
        kv_block_release(kv, t->ids[i]);
        t->ids[i] = same;
    }
    publish_begun(kv, t, tokens, n);
}

void kv_release(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n)
{
    if (kv->windows)
        kv_window_note(kv, t, n);
    if (t->shares && t->era == kv->era)
        commit_or_replace(kv, t, tokens, n);
    kv->st.releases += t->len > 0;
    kv_undo(kv, t);
}

void kv_undo(struct kv_blocks *kv, struct kv_table *t)
{
    kv_copied(kv, t); /* first: the copied block may be a child of one of ours */
    if (t->n_rolled)
        cells_settle(kv->cells, t->ids[t->n_rolled / kv->block_tokens - 1]);
    if (t->stateful)
        cells_give(kv->cells, t->cells);
    if (kv->windows)
        kv_window_release(kv, t);
    for (uint32_t i = t->len; i-- > 0;) /* tail first: children become colder than their parents */
        kv_block_release(kv, t->ids[i]);
    free(t->ids);
    free(t->windows);
    *t = (struct kv_table){0};
}

void kv_forget(struct kv_blocks *kv)
{
    kv_chain_drop_all(kv);
    if (kv->cells)
        cells_forget(kv->cells);
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
    assert(!kv->cells || cells_of(kv->cells, id) == NO_CELL ||
           (b->indexed && b->fill == kv->block_tokens));
    if (!b->indexed)
        return;
    assert(b->fill > 0 && b->fill <= kv->block_tokens);
    /* exactly one block per content: the look-up finds this one */
    if (b->fill == kv->block_tokens)
        assert(kv_index_find(kv, b->parent, b->space, kv->keys + (size_t)id * kv->block_tokens) ==
               id);
    if (b->parent == KV_NO_BLOCK)
        return;
    const struct block *p = &kv->b[b->parent];
    assert(p->indexed && p->space == b->space && p->fill == kv->block_tokens);
    assert(p->ref > 0 || (b->ref == 0 && p->warm > b->warm));
}

/* In order: every indexed block occurs once, and none is a prefix of another. */
static void check_order(const struct kv_blocks *kv, uint32_t n_indexed)
{
    const struct kv_content *is = NULL;
    for (uint32_t id; (id = kv_order_next(&kv->order, is)) != KV_NO_BLOCK; n_indexed--) {
        const struct block *b = &kv->b[id];
        const struct kv_content *next = &kv->order.v[id].is;
        assert(n_indexed > 0 && b->indexed && next->parent == b->parent && next->n == b->fill);
        assert(!is || is->parent != next->parent || is->space != next->space ||
               kv_order_common(&kv->order, id, is) < is->n);
        is = next;
    }
    assert(n_indexed == 0);
}

void kv_check(const struct kv_blocks *kv)
{
    uint32_t n_free = 0, n_cached = 0, n_used = 0, n_indexed = 0;
    if (kv->cells)
        cells_check(kv->cells);
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
        n_indexed += kv->b[i].indexed;
        check_block(kv, i);
    }
    check_order(kv, n_indexed);
    if (kv->windows)
        kv_window_check(kv);
    assert(n_free == kv->st.free && n_cached == kv->st.cached && n_used == kv->st.used);
    assert(n_free + n_cached + n_used == kv->st.total);
}
