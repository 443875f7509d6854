/* Admission: which blocks of a prompt are cached, and whether the rest fits. See blocks.h. */
#include "router/scheduler/kv/blocks.h"
#include "router/scheduler/kv/impl.h"
#include <assert.h>
#include <stdlib.h>

/* A single common token at the root is not worth a copy: it is usually BOS. */
enum { MIN_COMMON_ROOT = 2 };

bool kv_could_fit(const struct kv_blocks *kv, uint32_t n)
{
    return kv_blocks_of(kv, n) <= kv->st.total &&
           (!kv->cells || cells_stats(kv->cells).total >= CELLS_EACH) &&
           (!kv->windows || kv_window_could_fit(kv, n));
}

bool kv_may_fit(const struct kv_blocks *kv, uint32_t n_prompt, uint32_t n_reserve)
{
    uint32_t need = kv_blocks_of(kv, n_reserve);
    uint32_t hits = n_prompt > 0 ? (n_prompt - 1) / kv->block_tokens : 0;
    return need <= kv->st.total && (!kv->cells || cells_room(kv->cells, NO_CELL)) &&
           need - (hits < need ? hits : need) + kv->keep_free <= kv->st.free + kv->st.cached;
}

/* Where a prompt resumes: full blocks to share, then the beginning of one more. */
struct hit {
    uint32_t full;
    uint32_t from, n; /* block whose first n tokens match; n == 0: none */
    bool whole;       /* it is unused and matches completely: taken over without a copy */
    /* recurrent state: full blocks before the snapshot; windows: blocks after which a prompt may
     * resume */
    uint32_t stated;
    uint32_t cell; /* the snapshot, or NO_CELL */
    uint32_t run;  /* the last full blocks, whose window blocks are cached */
};

/* Tokens of a prompt that may come from the cache. The last token is always computed, for its
 * logits. */
static uint32_t most_hits(const struct kv_key *key)
{
    uint32_t fresh = key->n_fresh ? key->n_fresh : 1;
    return key->n > fresh ? key->n - fresh : 0;
}

static void find_begun(const struct kv_blocks *kv, const struct kv_key *key, uint32_t parent,
                       struct hit *h)
{
    uint32_t done = h->full * kv->block_tokens, left = most_hits(key) - done;
    const uint32_t n = left < kv->block_tokens ? left : kv->block_tokens;
    struct kv_content c = {parent, kv_space_of(key), kv->wanted, n};
    kv_media_keys(&key->media, key->tokens, done, n, kv->wanted);
    struct kv_near near = kv_order_near(&kv->order, &c);
    uint32_t before = kv_order_common(&kv->order, near.before, &c);
    uint32_t after = kv_order_common(&kv->order, near.after, &c);
    h->from = before >= after ? near.before : near.after;
    h->n = before >= after ? before : after;
    if (h->n < (parent == KV_NO_BLOCK ? MIN_COMMON_ROOT : 1))
        h->n = 0;
    if (h->n == 0)
        return;
    const struct block *b = &kv->b[h->from];
    h->whole = h->n == b->fill && b->fill < kv->block_tokens && b->ref == 0;
}

static void note_window(const struct kv_blocks *kv, uint32_t id, struct hit *h)
{
    h->run = kv_window_there(kv, id) ? h->run + 1 : 0;
    if (kv_window_whole(kv, h->run, h->full, 0))
        h->stated = h->full;
}

/* The beginning of a block may need fewer window blocks before it. */
static bool begins_well(const struct kv_blocks *kv, const struct hit *h)
{
    return kv_window_there(kv, h->from) && kv_window_whole(kv, h->run, h->full, h->n);
}

/* With windows: the tokens after which a prompt resumes. */
static uint32_t windowed_tokens(const struct kv_blocks *kv, const struct hit *h)
{
    return h->n > 0 ? h->full * kv->block_tokens + h->n : h->stated * kv->block_tokens;
}

static struct hit find(const struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key)
{
    const uint32_t bt = kv->block_tokens;
    struct hit h = {.cell = NO_CELL};
    uint32_t parent = KV_NO_BLOCK;
    /* The block with the last prompt token is never shared: recomputing that token in place would
     * overwrite a block that others read. */
    while ((h.full + UINT64_C(1)) * bt <= most_hits(key)) {
        kv_media_keys(&key->media, key->tokens, h.full * bt, bt, kv->wanted);
        uint32_t id = kv_index_find(kv, parent, kv_space_of(key), kv->wanted);
        if (id == KV_NO_BLOCK)
            break;
        t->ids[h.full++] = parent = id;
        uint32_t cell = kv->cells ? cells_of(kv->cells, id) : NO_CELL;
        if (cell != NO_CELL && !cells_pending(kv->cells, cell)) {
            h.stated = h.full;
            h.cell = cell;
        }
        if (kv->windows)
            note_window(kv, id, &h);
    }
    if (kv->copies && most_hits(key) > 0)
        find_begun(kv, key, parent, &h);
    if (kv->windows && h.n > 0 && !begins_well(kv, &h))
        h.n = 0;
    return h;
}

uint32_t kv_resident(struct kv_blocks *kv, const struct kv_key *key)
{
    struct kv_table t = {0};
    struct hit h = {0};
    if (kv_table_room(kv, &t, kv_most_blocks(kv, key)))
        h = find(kv, &t, key);
    free(t.ids);
    free(t.windows);
    return kv->cells || kv->windows ? h.stated : h.full;
}

/* Are there enough blocks for the part that `h` does not cover? Cached blocks that it revives do
 * not count as available. */
static bool room_for(const struct kv_blocks *kv, const struct kv_table *t, const struct hit *h,
                     uint32_t need)
{
    uint32_t revived = h->n > 0 && kv->b[h->from].ref == 0;
    for (uint32_t i = 0; i < h->full; i++)
        revived += kv->b[t->ids[i]].ref == 0;
    return kv->st.free + kv->st.cached - revived >=
           need - h->full - (h->n > 0 && h->whole) + kv->keep_free;
}

/* Two cells beside the snapshot of the hit, or without the hit if the snapshot's cell is needed. */
static bool room_for_state(const struct kv_blocks *kv, struct hit *h)
{
    if (cells_room(kv->cells, h->cell))
        return true;
    h->cell = NO_CELL;
    h->stated = 0;
    return cells_room(kv->cells, NO_CELL);
}

static void admit_state(struct kv_blocks *kv, struct kv_table *t, const struct hit *h)
{
    t->n_matched = h->full * kv->block_tokens;
    t->n_cached = t->n_kept = h->stated * kv->block_tokens;
    if (h->cell != NO_CELL) {
        cells_hold(kv->cells, h->cell); /* its block is held, so the snapshot still exists */
        t->state_from = h->cell + 1;
    }
    t->stateful = cells_take(kv->cells, t->cells);
    assert(t->stateful);
}

static bool room_for_windows(struct kv_blocks *kv, const struct kv_table *t,
                             const struct kv_key *key, const struct hit *h, uint32_t need)
{
    const struct window_need x = {.n_cached = windowed_tokens(kv, h),
                                  .known = h->full,
                                  .need = need,
                                  .copied = h->n > 0 ? h->from : 0,
                                  .media = &key->media};
    const bool room = !kv->windows || kv_window_room_for(kv, t, &x);
    kv->window_short |= !room;
    return room;
}

/* Before blocks are taken for the rest: they may be those that are looked at. */
static void explain(const struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key,
                    bool share, const struct hit *h)
{
    const uint32_t most = most_hits(key), done = h->full * kv->block_tokens;
    const bool from_state = (kv->cells || kv->windows) && h->n == 0;
    const uint32_t there = from_state ? h->stated * kv->block_tokens : done;
    t->miss = KV_MISS_NONE;
    t->miss_at = there + h->n;
    if (!share && most > 0)
        t->miss = KV_MISS_OFF;
    else if (there + h->n < done)
        t->miss = KV_MISS_STATE;
    else if (share && done + h->n < most)
        t->miss = kv_miss_find(kv, key, h->full ? t->ids[h->full - 1] : KV_NO_BLOCK, h->full, most,
                               &t->miss_at);
}

bool kv_admit(struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key, bool share,
              uint32_t n_reserve)
{
    uint32_t need = kv_blocks_of(kv, n_reserve);
    assert(t->len == 0 && key->n <= n_reserve);
    if (need > kv->st.total || !kv_table_room(kv, t, need))
        return false;
    struct hit h = share ? find(kv, t, key) : (struct hit){.cell = NO_CELL};
    if (kv->cells && !room_for_state(kv, &h))
        return false;
    if (h.n > 0 && (!room_for(kv, t, &h, need) || !room_for_windows(kv, t, key, &h, need)))
        h.n = 0; /* no block is left for the source of the copy */
    if (!room_for(kv, t, &h, need) || !room_for_windows(kv, t, key, &h, need))
        return false;
    explain(kv, t, key, share, &h);
    t->len = h.full;
    for (uint32_t i = 0; i < h.full; i++)
        kv_block_hold(kv, t->ids[i]);
    if (h.n > 0)
        kv_block_hold(kv, h.from); /* the allocations below must not evict it */
    if (h.n > 0 && h.whole)
        t->ids[t->len++] = h.from;
    else if (h.n > 0)
        t->copy_from = h.from;
    while (t->len < need)
        t->ids[t->len++] = kv_block_take(kv);
    t->n_sealed = h.full;
    t->n_cached = h.full * kv->block_tokens + h.n;
    t->space = kv_space_of(key);
    t->local = key->adapter != 0;
    t->media = key->media;
    t->era = kv->era;
    t->shares = share;
    if (kv->cells)
        admit_state(kv, t, &h);
    if (kv->windows) {
        t->n_matched = h.full * kv->block_tokens;
        t->n_cached = windowed_tokens(kv, &h);
        kv_window_admit(kv, t, key->n);
    }
    kv->st.hits += h.full;
    kv->st.begun += h.n > 0;
    kv->st.misses += need - h.full;
    return true;
}

void kv_copied(struct kv_blocks *kv, struct kv_table *t)
{
    if (kv->windows)
        kv_window_copied(kv, t);
    if (t->copy_from)
        kv_block_release(kv, t->copy_from);
    t->copy_from = 0;
    if (t->state_from) {
        cells_release(kv->cells, t->state_from - 1);
        kv->st.releases++; /* that cell is available now */
    }
    t->state_from = 0;
}

void kv_keep_free(struct kv_blocks *kv, uint32_t n) { kv->keep_free = n; }
