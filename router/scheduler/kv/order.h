/* order.h - indexed blocks sorted by content, so that the block with the longest common prefix
 * is a neighbour.
 *
 * A treap over block ids: no allocation after kv_order_init(), no recursion, O(log n) expected for
 * any input. Sorted by parent, space and keys; a prefix sorts before its extensions. Private to
 * blocks.c (and impl.h). */
#ifndef ROUTER_SCHEDULER_KV_ORDER_H
#define ROUTER_SCHEDULER_KV_ORDER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_NO_BLOCK UINT32_MAX

/* Content of a block: the keys of `n` tokens after those of its parent. */
struct kv_content {
    uint32_t parent; /* KV_NO_BLOCK: the first block of a prompt */
    uint64_t space;  /* adapter and salt; see kv_key */
    const uint64_t *keys;
    uint32_t n;
    bool local; /* not part of the order: see offload.h */
};

struct kv_order {
    struct kv_node {
        struct kv_content is;
        uint32_t left, right;
        uint64_t height; /* random priority: the largest of its subtree */
    } * v;
    uint32_t root;
};

bool kv_order_init(struct kv_order *o, uint32_t n_blocks, uint64_t seed); /* false: out of memory */
void kv_order_free(struct kv_order *o);
/* `is->keys` must not change until the block is dropped. No other block may have the same
 * content. */
void kv_order_put(struct kv_order *o, uint32_t id, const struct kv_content *is);
void kv_order_drop(struct kv_order *o, uint32_t id);

struct kv_near {
    uint32_t before, after; /* `after` sorts at or after it; KV_NO_BLOCK: none with that parent */
};
/* The neighbours of `is`. One of them has the longest common prefix with it. */
struct kv_near kv_order_near(const struct kv_order *o, const struct kv_content *is);
/* Number of leading keys that block `id` shares with `is`. */
uint32_t kv_order_common(const struct kv_order *o, uint32_t id, const struct kv_content *is);

/* The first block in order, or the one after `is`. For tests. */
uint32_t kv_order_next(const struct kv_order *o, const struct kv_content *is); /* NULL: the first */
#endif
