/* offload.h - stores blocks of the prefix tree in lower cache tiers, and loads them back.
 *
 * A full block has a chained key: SHA-256 over its parent's key, its space and the keys of its own
 * positions (media.h). The key identifies the whole prefix, is equal in every process, and a
 * client cannot construct a collision. Blocks of adapters have no key: adapter numbers are local to
 * a process.
 *
 * A block is stored after the last sequence released it, with the window and the state cached for
 * it at that time. kv_spill() lists such blocks in the order in which they became cache. A load
 * reserves blocks as a request would (kv_import()), and then adds them to the tree as cache. Part
 * of kv_blocks: pure, scheduler thread. */
#ifndef ROUTER_SCHEDULER_KV_OFFLOAD_H
#define ROUTER_SCHEDULER_KV_OFFLOAD_H
#include "router/scheduler/kv/blocks.h"

enum { KV_CHAIN = 32 };
enum { KV_HAS_BLOCK = 1, KV_HAS_WINDOW = 2, KV_HAS_STATE = 4 }; /* parts, numbered as on the wire */

/* kv_keyed(): computes keys. kv_offloading(): also queues blocks that become cache for storing.
 * Call before any use. False: out of memory. */
bool kv_keyed(struct kv_blocks *kv);
bool kv_offloading(struct kv_blocks *kv);

/* Notified of full blocks that become hits (with their key, their parent's or NULL, and their
 * tokens) and of blocks that no longer are. Blocks with an adapter, a salt (a tenant's), or an
 * image inside or before them are not reported. Requires kv_keyed(). */
struct kv_watcher {
    void (*stored)(void *arg, const uint8_t *key, const uint8_t *parent, const uint64_t *tokens);
    void (*removed)(void *arg, const uint8_t *key);
    void (*cleared)(void *arg);
    void *arg;
};
void kv_watch(struct kv_blocks *kv, const struct kv_watcher *w);

struct kv_spill {
    uint8_t key[KV_CHAIN];
    uint32_t block, window, cell; /* window 0, cell NO_CELL: none */
    uint8_t parts;
};
uint32_t kv_spill_waiting(const struct kv_blocks *kv); /* an upper bound */
/* Takes up to `most` blocks to store next. Then kv_spilled() reports how many of them were stored;
 * the rest is queued again. */
uint32_t kv_spill(struct kv_blocks *kv, struct kv_spill *out, uint32_t most);
void kv_spilled(struct kv_blocks *kv, const struct kv_spill *v, uint32_t n, uint32_t n_stored);
/* Queues the full block `id` of a table for storing now, held or not, stored before or not. */
void kv_offer(struct kv_blocks *kv, uint32_t id);
uint64_t kv_spill_lost(const struct kv_blocks *kv); /* blocks evicted before they were stored */

/* kv_most_blocks(): full blocks of a prompt that may come from the cache. kv_resident(): how many a
 * request would hit now; with windows or state, after how many it could resume. */
uint32_t kv_most_blocks(const struct kv_blocks *kv, const struct kv_key *key);
uint32_t kv_resident(struct kv_blocks *kv, const struct kv_key *key);
/* Writes the keys of the first n full blocks to out[n]. */
void kv_chain_keys(const struct kv_blocks *kv, const struct kv_key *key, uint32_t n,
                   uint8_t (*out)[KV_CHAIN]);

/* Blocks [from, from + n) of a prompt are available, block from + i with parts[i]. Reserves the
 * missing blocks in front of the deepest position where a request could resume. Returns that many
 * leading blocks; 0: no gain, or no free blocks, and `t` is empty. `key` must stay valid until
 * kv_imported(). */
uint32_t kv_import(struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key,
                   uint32_t from, const uint8_t *parts, uint32_t n);
/* What to load into block i of the import. Numbers are 0, or NO_CELL, for parts that are cached or
 * not needed. False: nothing. */
bool kv_import_wants(const struct kv_blocks *kv, const struct kv_table *t, uint32_t i,
                     struct kv_spill *out);
/* The load succeeded or failed; `t` is released. */
void kv_imported(struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key, bool ok);
#endif
