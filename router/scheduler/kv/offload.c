#include "router/scheduler/kv/offload.h"
#include "router/scheduler/kv/impl.h"
#include <assert.h>
#include <gnutls/crypto.h>
#include <stdlib.h>
#include <string.h>

bool kv_keyed(struct kv_blocks *kv)
{
    if (!kv->chains)
        kv->chains = calloc((size_t)kv->n + 1, sizeof(*kv->chains));
    return kv->chains != NULL;
}

bool kv_offloading(struct kv_blocks *kv)
{
    kv->spill = calloc((size_t)kv->n + 1, sizeof(*kv->spill));
    return kv_keyed(kv) && kv->spill;
}

void kv_watch(struct kv_blocks *kv, const struct kv_watcher *w) { kv->watcher = *w; }

/* ------------------------------------------------------------------ keys */

static void chain(const uint8_t *parent, uint64_t space, const uint64_t *keys, uint32_t n,
                  uint8_t *out)
{
    static const uint8_t root[KV_CHAIN];
    gnutls_hash_hd_t h;
    memset(out, 0, KV_CHAIN);
    if (gnutls_hash_init(&h, GNUTLS_DIG_SHA256) < 0)
        return; /* an all-zero key matches no block */
    gnutls_hash(h, parent ? parent : root, KV_CHAIN);
    gnutls_hash(h, &space, sizeof(space));
    gnutls_hash(h, keys, n * sizeof(*keys));
    gnutls_hash_deinit(h, out);
}

static bool is_reported(const struct kv_blocks *kv, const struct block *b, const uint64_t *keys)
{
    bool reported = kv->watcher.stored && !b->local && b->space == 0 &&
                    (b->parent == KV_NO_BLOCK || kv->b[b->parent].reported);
    for (uint32_t i = 0; reported && i < kv->block_tokens; i++)
        reported = keys[i] <= UINT32_MAX; /* inside an image a key is not a token id */
    return reported;
}

void kv_chain_block(struct kv_blocks *kv, uint32_t id)
{
    struct block *b = &kv->b[id];
    const uint64_t *keys = kv->keys + (size_t)id * kv->block_tokens;
    const uint8_t *parent = b->parent == KV_NO_BLOCK ? NULL : kv->chains[b->parent];
    chain(parent, b->space, keys, kv->block_tokens, kv->chains[id]);
    b->reported = is_reported(kv, b, keys);
    if (b->reported)
        kv->watcher.stored(kv->watcher.arg, kv->chains[id], parent, keys);
}

void kv_chain_drop(struct kv_blocks *kv, uint32_t id)
{
    if (kv->b[id].reported)
        kv->watcher.removed(kv->watcher.arg, kv->chains[id]);
    kv->b[id].reported = false;
}

void kv_chain_drop_all(struct kv_blocks *kv)
{
    for (uint32_t i = 0; kv->chains && i < kv->n; i++)
        kv->b[i].reported = false;
    if (kv->watcher.cleared)
        kv->watcher.cleared(kv->watcher.arg);
}

void kv_chain_keys(const struct kv_blocks *kv, const struct kv_key *key, uint32_t n,
                   uint8_t (*out)[KV_CHAIN])
{
    const uint32_t bt = kv->block_tokens;
    for (uint32_t i = 0; i < n; i++) {
        kv_media_keys(&key->media, key->tokens, i * bt, bt, kv->wanted);
        chain(i ? out[i - 1] : NULL, kv_space_of(key), kv->wanted, bt, out[i]);
    }
}

/* ------------------------------------------------------------------ store */

static uint8_t parts_of(const struct kv_blocks *kv, uint32_t id)
{
    uint8_t parts = KV_HAS_BLOCK;
    if (kv->windows && kv_window_there(kv, id))
        parts |= KV_HAS_WINDOW;
    if (kv->cells && cells_of(kv->cells, id) != NO_CELL)
        parts |= KV_HAS_STATE;
    return parts;
}

static void enqueue(struct kv_blocks *kv, uint32_t id)
{
    struct block *b = &kv->b[id];
    assert(!b->queued && kv->n_spill < kv->n);
    b->queued = true;
    kv->spill[(kv->spill_head + kv->n_spill++) % kv->n] = id;
}

void kv_spill_note(struct kv_blocks *kv, uint32_t id)
{
    const struct block *b = &kv->b[id];
    if (b->queued || b->local || b->fill < kv->block_tokens || !(parts_of(kv, id) & ~b->stored))
        return;
    enqueue(kv, id);
}

void kv_offer(struct kv_blocks *kv, uint32_t id)
{
    struct block *b = &kv->b[id];
    if (b->local || b->fill < kv->block_tokens)
        return;
    b->stored = 0;
    if (!b->queued)
        enqueue(kv, id);
}

uint32_t kv_spill_waiting(const struct kv_blocks *kv) { return kv->n_spill; }
uint64_t kv_spill_lost(const struct kv_blocks *kv) { return kv->n_spill_lost; }

/* False: it has nothing to store, now or later. */
static bool describe(struct kv_blocks *kv, uint32_t id, struct kv_spill *out)
{
    const struct block *b = &kv->b[id];
    if (!b->indexed || b->local || b->fill < kv->block_tokens || !(parts_of(kv, id) & ~b->stored))
        return false;
    *out = (struct kv_spill){.block = id, .cell = NO_CELL, .parts = parts_of(kv, id)};
    memcpy(out->key, kv->chains[id], KV_CHAIN);
    if (out->parts & KV_HAS_WINDOW)
        out->window = windows_of(kv->windows, id);
    if (out->parts & KV_HAS_STATE)
        out->cell = cells_of(kv->cells, id);
    return true;
}

uint32_t kv_spill(struct kv_blocks *kv, struct kv_spill *out, uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t left = kv->n_spill; left > 0 && n < most; left--) {
        const uint32_t id = kv->spill[kv->spill_head];
        kv->spill_head = (kv->spill_head + 1) % kv->n;
        kv->n_spill--;
        kv->b[id].queued = false;
        if (!describe(kv, id, &out[n]))
            continue;
        if (out[n].cell != NO_CELL && cells_pending(kv->cells, out[n].cell))
            enqueue(kv, id); /* its state is saved with the next step */
        else
            n++;
    }
    return n;
}

void kv_spilled(struct kv_blocks *kv, const struct kv_spill *v, uint32_t n, uint32_t n_stored)
{
    for (uint32_t i = 0; i < n; i++) {
        struct block *b = &kv->b[v[i].block];
        if (!b->indexed || memcmp(kv->chains[v[i].block], v[i].key, KV_CHAIN) != 0)
            continue; /* the device lost it meanwhile */
        if (i < n_stored)
            b->stored |= v[i].parts;
        else if (!b->queued)
            enqueue(kv, v[i].block);
    }
}

/* ------------------------------------------------------------------ load */

uint32_t kv_most_blocks(const struct kv_blocks *kv, const struct kv_key *key)
{
    const uint32_t fresh = key->n_fresh ? key->n_fresh : 1;
    return (key->n > fresh ? key->n - fresh : 0) / kv->block_tokens;
}

static uint32_t found_at(const struct kv_blocks *kv, const struct kv_table *t, uint32_t i)
{
    return i < t->n_sealed ? parts_of(kv, t->ids[i]) : 0;
}

/* Number of blocks after which a request could resume, with cached and available parts. */
static uint32_t deepest(const struct kv_blocks *kv, const struct kv_table *t, uint32_t from,
                        const uint8_t *parts, uint32_t n)
{
    uint32_t run = 0, best = 0;
    for (uint32_t i = 0; i < from + n; i++) {
        const uint8_t fetched = i >= from ? parts[i - from] : 0;
        const uint8_t all = (uint8_t)(found_at(kv, t, i) | fetched);
        if (!(all & KV_HAS_BLOCK))
            break;
        run = all & KV_HAS_WINDOW ? run + 1 : 0;
        const bool stated = !kv->cells || fetched & KV_HAS_STATE;
        if (stated && (!kv->windows || kv_window_whole(kv, run, i + 1, 0)))
            best = i + 1;
    }
    return best;
}

static bool reserve(struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key, uint32_t n)
{
    const struct kv_stats was = kv->st;
    const bool copies = kv->copies;
    struct kv_key k = *key;
    k.n = n * kv->block_tokens;
    k.n_fresh = 0;
    kv->copies = false;
    const bool ok = kv_admit(kv, t, &k, true, k.n);
    kv->copies = copies;
    kv->st.hits = was.hits;
    kv->st.misses = was.misses;
    if (ok)
        kv_copied(kv, t); /* a snapshot that it would start from */
    return ok;
}

uint32_t kv_import(struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key,
                   uint32_t from, const uint8_t *parts, uint32_t n)
{
    const uint32_t resident = kv_resident(kv, key);
    uint32_t end = 0;
    if (!key->adapter && n > 0 && reserve(kv, t, key, from + n))
        end = deepest(kv, t, from, parts, n);
    if (end < from + n)
        kv_undo(kv, t); /* retry with fewer blocks */
    if (end > resident && end < from + n && !reserve(kv, t, key, end))
        end = 0;
    if (end > resident && (!kv->windows || kv_window_jump(kv, t, end * kv->block_tokens)))
        return end;
    kv_undo(kv, t);
    return 0;
}

bool kv_import_wants(const struct kv_blocks *kv, const struct kv_table *t, uint32_t i,
                     struct kv_spill *out)
{
    const uint8_t have = (uint8_t)found_at(kv, t, i);
    *out = (struct kv_spill){.cell = NO_CELL};
    if (!(have & KV_HAS_BLOCK)) {
        out->block = t->ids[i];
        out->parts = KV_HAS_BLOCK;
    }
    if (kv->windows && i >= t->windows_from && i < t->windows_to && !(have & KV_HAS_WINDOW)) {
        out->window = t->windows[i];
        out->parts |= KV_HAS_WINDOW;
    }
    if (t->stateful && i + 1 == t->len) {
        out->cell = t->cells[0];
        out->parts |= KV_HAS_STATE;
    }
    return out->parts != 0;
}

/* Keeps the state of its last block as a snapshot. */
static void keep_state(struct kv_blocks *kv, struct kv_table *t)
{
    if (!t->stateful || t->era != kv->era || t->n_sealed < t->len ||
        cells_of(kv->cells, t->ids[t->len - 1]) != NO_CELL)
        return;
    cells_adopt(kv->cells, t->cells, t->ids[t->len - 1]);
    t->stateful = false;
}

void kv_imported(struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key, bool ok)
{
    const uint32_t known = t->n_sealed, n = t->len * kv->block_tokens;
    if (!ok || t->era != kv->era) {
        kv_undo(kv, t);
        return;
    }
    kv_commit(kv, t, key->tokens, n);
    keep_state(kv, t);
    for (uint32_t i = known; i < t->n_sealed; i++)
        kv->b[t->ids[i]].stored = KV_HAS_BLOCK | KV_HAS_WINDOW | KV_HAS_STATE;
    kv_release(kv, t, key->tokens, n);
}
