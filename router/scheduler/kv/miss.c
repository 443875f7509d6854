#include "router/scheduler/kv/miss.h"
#include "router/scheduler/kv/impl.h"

const char *kv_miss_name(enum kv_miss m)
{
    static const char *const names[] = {
        [KV_MISS_OFF] = "not shared",  [KV_MISS_NEW] = "new",        [KV_MISS_DIFFERS] = "differs",
        [KV_MISS_EVICTED] = "evicted", [KV_MISS_STATE] = "no state",
    };
    return m == KV_MISS_NONE ? NULL : names[m];
}

/* The low bits say where, the high ones which; 0 is none. */
static uint32_t mark(uint64_t hash) { return (uint32_t)(hash >> 32) | 1; }

void kv_miss_evict(struct kv_blocks *kv, uint32_t id)
{
    const struct block *b = &kv->b[id];
    if (b->fill < kv->block_tokens)
        return;
    const uint64_t h = kv_hash(kv, b->parent, b->space, kv->keys + (size_t)id * kv->block_tokens);
    kv->ghosts[h % KV_GHOSTS] = mark(h);
}

static bool was_evicted(const struct kv_blocks *kv, const struct kv_content *c)
{
    const uint64_t h = kv_hash(kv, c->parent, c->space, c->keys);
    return kv->ghosts[h % KV_GHOSTS] == mark(h);
}

enum kv_miss kv_miss_find(const struct kv_blocks *kv, const struct kv_key *key, uint32_t parent,
                          uint32_t full, uint32_t most, uint32_t *at)
{
    const uint32_t done = full * kv->block_tokens, left = most - done;
    const uint32_t n = left < kv->block_tokens ? left : kv->block_tokens;
    const struct kv_content c = {parent, kv_space_of(key), kv->wanted, n};
    *at = done;
    kv_media_keys(&key->media, key->tokens, done, n, kv->wanted);
    if (n == kv->block_tokens && was_evicted(kv, &c))
        return KV_MISS_EVICTED;
    const struct kv_near near = kv_order_near(&kv->order, &c);
    const uint32_t before = kv_order_common(&kv->order, near.before, &c),
                   after = kv_order_common(&kv->order, near.after, &c);
    *at += before > after ? before : after;
    return *at > done ? KV_MISS_DIFFERS : KV_MISS_NEW;
}
