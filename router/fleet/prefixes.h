/* prefixes.h - an estimate of the prompt prefixes that a replica has in its cache.
 *
 * It records what was sent to the replica, without calls to it. A prefix is a list of hashes, one
 * per block, each over all content before it, including adapter and salt. The index holds as many
 * hashes as the replica's cache has blocks, and evicts the least recently used, as the cache does.
 * A wrong estimate costs computation, never correctness: the replica compares tokens.
 *
 * Pure; guarded by the fleet's lock. */
#ifndef ROUTER_FLEET_PREFIXES_H
#define ROUTER_FLEET_PREFIXES_H
#include "router/scheduler/kv/media.h"
#include <stdbool.h>
#include <stdint.h>

enum { PREFIXES_MIN = 64, PREFIXES_MAX = 1 << 17 };

struct prefixes { /* zeroed: empty, and stays empty */
    struct prefix_node *v;
    uint32_t *bucket;
    uint32_t n, cap, n_buckets;
    uint32_t warmest, coldest; /* 1 + index in v; 0: none */
};

/* For a cache of `n_blocks`, clamped to PREFIXES_MIN .. PREFIXES_MAX. False: out of memory. */
bool prefixes_init(struct prefixes *p, uint32_t n_blocks);
void prefixes_free(struct prefixes *p);
void prefixes_clear(struct prefixes *p); /* the replica lost its cache */
/* Length of the longest known prefix of hashes[0..n). */
uint32_t prefixes_match(const struct prefixes *p, const uint64_t *hashes, uint32_t n);
/* Adds all of them; the first ones become the warmest. */
void prefixes_put(struct prefixes *p, const uint64_t *hashes, uint32_t n);

/* hashes[0] identifies the space: an adapter (NULL: the base model) and a salt. hashes[1 + i]
 * covers the first i + 1 full blocks of `ids`, by the keys of their positions (kv/media.h). The
 * last token of a prompt is always computed and belongs to no block. Returns the number of hashes;
 * `out` has space for 1 + n / block. */
uint32_t prefixes_hash(const char *adapter, uint64_t salt, const struct kv_media *media,
                       const uint32_t *ids, uint32_t n, uint32_t block, uint64_t *out);
#endif
