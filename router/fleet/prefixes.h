/* prefixes.h - which beginnings of prompts a replica may have in its cache.
 *
 * Kept by what was sent there: the replica is not asked. A beginning is a list of hashes, one for
 * each block, each over everything before it (the adapter and the salt, too). The index holds as
 * many as the replica's cache has blocks, and forgets the coldest first, as that does. A wrong
 * guess costs computation, never correctness: the replica's own index decides by tokens.
 *
 * Pure; the fleet's lock guards it. */
#ifndef ROUTER_FLEET_PREFIXES_H
#define ROUTER_FLEET_PREFIXES_H
#include "router/scheduler/kv_media.h"
#include <stdbool.h>
#include <stdint.h>

enum { PREFIXES_MIN = 64, PREFIXES_MAX = 1 << 17 };

struct prefixes { /* zero: knows nothing and takes nothing */
    struct prefix_node *v;
    uint32_t *bucket;
    uint32_t n, cap, n_buckets;
    uint32_t warmest, coldest; /* 1 + index in v; 0: none */
};

/* For a cache of `n_blocks`, within PREFIXES_MIN and PREFIXES_MAX. False: no memory. */
bool prefixes_init(struct prefixes *p, uint32_t n_blocks);
void prefixes_free(struct prefixes *p);
void prefixes_clear(struct prefixes *p); /* the replica lost its cache */
/* How many of hashes[0..n) it has, from the first on. */
uint32_t prefixes_match(const struct prefixes *p, const uint64_t *hashes, uint32_t n);
/* It has them all from now on, the first ones warmest. */
void prefixes_put(struct prefixes *p, const uint64_t *hashes, uint32_t n);

/* hashes[0] is that of the space: an adapter (NULL: the base model) and a salt. hashes[1 + i] is
 * that of the i-th full block of `ids`, and of all before it: of the keys of their positions, so
 * that pictures behind equal placeholders differ. The last token of a prompt is always computed and
 * counts to no block. Returns how many there are; `out` has room for 1 + n / block. */
uint32_t prefixes_hash(const char *adapter, uint64_t salt, const struct kv_media *media,
                       const uint32_t *ids, uint32_t n, uint32_t block, uint64_t *out);
#endif
