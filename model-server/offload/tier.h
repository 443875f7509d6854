/* tier.h - blocks of prefixes below the KV cache: in the host's memory, and behind that in a
 * folder.
 *
 * Both are caches: any block may be missing at any time. What is put here is written to the folder
 * by a thread of its own. Where that falls behind, blocks in memory cannot be given up and new ones
 * are not taken: no caller ever waits for a disk but that of kv_tier_fetch().
 *
 * Threads: put, keep, ready and layout are the engine's; fetch and insert come from one other
 * thread; read and stats from any. */
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
/* Writes what is not in the folder yet, for at most five seconds. NULL is fine. */
void kv_tier_free(struct kv_tier *t);
/* The caches are laid out like this from now on; what was kept for another layout is dropped. A
 * folder is opened here. */
int kv_tier_layout(struct kv_tier *t, const struct kv_layout *l, struct err *e);
const struct kv_layout *kv_tier_laid_out(const struct kv_tier *t);

/* A record to be filled, and handed to kv_tier_put() or kv_tier_drop(). *out NULL: the tier has
 * these parts already. False: there is no room now. Parts of a record that is there, and are not
 * asked for, are filled already. */
bool kv_tier_begin(struct kv_tier *t, const uint8_t key[KV_KEY], unsigned parts, void **out);
void kv_tier_put(struct kv_tier *t, void *record);
void kv_tier_drop(struct kv_tier *t, void *record);

/* The blocks of these keys, in memory: up to the first that is not kept, or for which there is no
 * room. parts[i] says what block i has. They stay until the next fetch. Returns how many. */
uint32_t kv_tier_fetch(struct kv_tier *t, uint64_t id, const uint8_t *const *keys, uint32_t n,
                       uint8_t *parts, uint32_t *from_disk, bool *more);
/* What the last fetch made ready stays until kv_tier_release(). False: a fetch is under way. */
bool kv_tier_hold(struct kv_tier *t);
void kv_tier_release(struct kv_tier *t);
/* In between: a part of a block that fetch `id` has made ready. NULL: it is not there. */
const void *kv_tier_ready(struct kv_tier *t, uint64_t id, const uint8_t key[KV_KEY],
                          enum kv_part part);

/* For peers: a record is kept in memory until `until_ns` or until it was read, though never more
 * than half of the memory is. */
void kv_tier_keep(struct kv_tier *t, const uint8_t key[KV_KEY], int64_t until_ns);
/* A sealed copy of a record in memory, to be freed; its length in *n. One that is not there is
 * waited for until `until_ns`; 0: not. `identity` must be the layout's: else *foreign. NULL: it is
 * not there. */
void *kv_tier_read(struct kv_tier *t, const uint8_t identity[KV_IDENTITY],
                   const uint8_t key[KV_KEY], int64_t until_ns, size_t *n, bool *foreign);
/* A record of n bytes that came from a peer: it is checked, and put into memory if there is room
 * (*room) and it is not there yet. */
enum kv_verdict kv_tier_insert(struct kv_tier *t, const uint8_t key[KV_KEY], const void *record,
                               size_t n, bool *room);
uint64_t kv_tier_memory(const struct kv_tier *t); /* the limit */

struct kv_tier_stats {
    uint64_t memory_bytes, disk_bytes, memory_evictions, disk_evictions, damaged, foreign,
        failed_writes, written;
};
struct kv_tier_stats kv_tier_stats(struct kv_tier *t);
#endif
