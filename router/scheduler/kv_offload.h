/* kv_offload.h - blocks of the prefix tree that leave the KV cache, and come back.
 *
 * A full block has a key: SHA-256 over the key of its parent, its space and the keys of its own
 * positions (kv_media.h). So a key stands for a whole prefix, is the same in every process, and
 * cannot be made to order by a client. Blocks of adapters have none: an adapter's number is this
 * process's.
 *
 * A block is stored once no sequence holds it, whole, with the window and the state that are cached
 * for it then. kv_spill() lists such blocks in the order in which they became cache. What comes
 * back is reserved as if a request wanted it (kv_import()), and joins the tree as cache. Part of
 * kv_blocks: pure, the scheduler's thread. */
#ifndef ROUTER_SCHEDULER_KV_OFFLOAD_H
#define ROUTER_SCHEDULER_KV_OFFLOAD_H
#include "router/scheduler/kv_blocks.h"

enum { KV_CHAIN = 32 };
enum { KV_HAS_BLOCK = 1, KV_HAS_WINDOW = 2, KV_HAS_STATE = 4 }; /* parts, as on the wire */

/* Blocks get keys; and those that are cache wait to be stored. Before any use; false: no memory. */
bool kv_keyed(struct kv_blocks *kv);
bool kv_offloading(struct kv_blocks *kv);

/* Told of full blocks that become hits, with their key, their parent's (NULL: none) and their
 * tokens, and of those that are no hits any more. Not of blocks that are an adapter's, a tenant's
 * (a salt) or have pictures in front or inside. With kv_keyed(). */
struct kv_watcher {
    void (*stored)(void *arg, const uint8_t *key, const uint8_t *parent, const uint64_t *tokens);
    void (*removed)(void *arg, const uint8_t *key);
    void (*cleared)(void *arg);
    void *arg;
};
void kv_watch(struct kv_blocks *kv, const struct kv_watcher *w);

struct kv_spill {
    uint8_t key[KV_CHAIN];
    uint32_t block, window, cell; /* window 0, cell NO_CELL: there is none */
    uint8_t parts;
};
uint32_t kv_spill_waiting(const struct kv_blocks *kv); /* at most so many */
/* The next blocks to be stored, `most` at most. They are the caller's to store now, until
 * kv_spilled() says how many of them were; the others wait again. */
uint32_t kv_spill(struct kv_blocks *kv, struct kv_spill *out, uint32_t most);
void kv_spilled(struct kv_blocks *kv, const struct kv_spill *v, uint32_t n, uint32_t n_stored);
/* The full block `id` of a table is to be stored now, held by a sequence or not, also if it was
 * before. */
void kv_offer(struct kv_blocks *kv, uint32_t id);
uint64_t kv_spill_lost(const struct kv_blocks *kv); /* evicted before they were stored */

/* Full blocks of a prompt that may come from the cache, and how many of them a request would find
 * now; of models with windows or state: behind how many it could go on. */
uint32_t kv_most_blocks(const struct kv_blocks *kv, const struct kv_key *key);
uint32_t kv_resident(struct kv_blocks *kv, const struct kv_key *key);
/* Their keys: out[n]. */
void kv_chain_keys(const struct kv_blocks *kv, const struct kv_key *key, uint32_t n,
                   uint8_t (*out)[KV_CHAIN]);

/* Blocks [from, from + n) of a prompt are to be had, block from + i with parts[i]. Reserves what is
 * missing in front of the deepest place where a request could go on, and returns how many leading
 * blocks that are; 0: it does not pay, or there is no room, and `t` is empty. `key` must last until
 * kv_imported(). */
uint32_t kv_import(struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key,
                   uint32_t from, const uint8_t *parts, uint32_t n);
/* What block i of the import has to be loaded with: numbers are 0, or NO_CELL, for what is there or
 * not wanted. False: nothing. */
bool kv_import_wants(const struct kv_blocks *kv, const struct kv_table *t, uint32_t i,
                     struct kv_spill *out);
/* It was loaded, or not: `t` is given back. */
void kv_imported(struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key, bool ok);
#endif
