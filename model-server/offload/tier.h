/* tier.h - the tiers below the KV cache: prefix blocks in host memory, then in a folder.
 *
 * Both are caches: any block may be missing at any time. A writer thread copies new blocks to the
 * folder. Blocks that are not written yet cannot be evicted from memory; if the disk is too slow,
 * kv_tier_begin() refuses new ones. Only kv_tier_fetch() waits for the disk.
 *
 * Threads: the engine calls put, keep, ready and layout. One other thread calls fetch and insert.
 * Any thread calls read and stats. */
#ifndef MODEL_SERVER_OFFLOAD_TIER_H
#define MODEL_SERVER_OFFLOAD_TIER_H
#include "common/err.h"
#include "model-server/offload/record.h"

struct kv_tier_options {
    const char *dir; /* NULL: no folder */
    uint64_t dir_bytes, memory_bytes;
};
struct kv_tier;
struct kv_tier *kv_tier_new(const struct kv_tier_options *o,
                            struct err *e); /* `o->dir` is copied */
/* Writes pending blocks to the folder for at most five seconds, then frees. NULL is fine. */
void kv_tier_free(struct kv_tier *t);
/* Sets the layout of the caches and opens the folder. Blocks of another layout are dropped. */
int kv_tier_layout(struct kv_tier *t, const struct kv_layout *l, struct err *e);
const struct kv_layout *kv_tier_laid_out(const struct kv_tier *t);

/* Allocates a record with `parts`. The caller fills it and passes it to kv_tier_put() or
 * kv_tier_drop(). If the tier has a record of this key, its other parts are copied. *out NULL: the
 * tier has all of these parts. False: no memory is free now. */
bool kv_tier_begin(struct kv_tier *t, const uint8_t key[KV_KEY], unsigned parts, void **out);
void kv_tier_put(struct kv_tier *t, void *record);
void kv_tier_drop(struct kv_tier *t, void *record);

/* Loads the blocks of keys[n] into memory, up to the first that is missing or does not fit, and
 * pins them until the next fetch. Returns their number. parts[i]: parts of block i. */
uint32_t kv_tier_fetch(struct kv_tier *t, uint64_t id, const uint8_t *const *keys, uint32_t n,
                       uint8_t *parts, uint32_t *from_disk, bool *more);
/* Keeps the blocks of the last fetch pinned until kv_tier_release(). False: a fetch is running. */
bool kv_tier_hold(struct kv_tier *t);
void kv_tier_release(struct kv_tier *t);
/* Between hold and release: a part of a block that fetch `id` loaded. NULL: it was not loaded. */
const void *kv_tier_ready(struct kv_tier *t, uint64_t id, const uint8_t key[KV_KEY],
                          enum kv_part part);

/* Pins a record for a peer until it was read or `until_ns` passes. At most half of the memory is
 * pinned this way. */
void kv_tier_keep(struct kv_tier *t, const uint8_t key[KV_KEY], int64_t until_ns);
/* Returns a sealed copy of a record, to be freed, and its length in *n. Waits until `until_ns` for
 * a missing record; 0: does not wait. *foreign: `identity` is not the layout's. NULL: missing or
 * foreign. */
void *kv_tier_read(struct kv_tier *t, const uint8_t identity[KV_IDENTITY],
                   const uint8_t key[KV_KEY], int64_t until_ns, size_t *n, bool *foreign);
/* Verifies a record of n bytes from a peer and stores a copy unless the tier has it. *room: false
 * if it did not fit. */
enum kv_verdict kv_tier_insert(struct kv_tier *t, const uint8_t key[KV_KEY], const void *record,
                               size_t n, bool *room);
uint64_t kv_tier_memory(const struct kv_tier *t); /* limit of host memory, bytes */

struct kv_tier_stats {
    uint64_t memory_bytes, disk_bytes, memory_evictions, disk_evictions, damaged, foreign,
        failed_writes, written;
};
struct kv_tier_stats kv_tier_stats(struct kv_tier *t);
#endif
