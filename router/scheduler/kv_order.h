/* kv_order.h - indexed blocks in the order of what they hold, so that the one with the longest
 * common beginning is a neighbour.
 *
 * A treap over block numbers: no allocation after kv_order_init(), no recursion, O(log n) expected
 * whatever clients send. Sorted by parent, space, keys; a beginning comes before what goes on
 * from it. Private to kv_blocks.c (and kv_impl.h). */
#ifndef ROUTER_SCHEDULER_KV_ORDER_H
#define ROUTER_SCHEDULER_KV_ORDER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_NO_BLOCK UINT32_MAX

/* What a block holds: the keys of `n` tokens behind those of its parent. */
struct kv_content {
    uint32_t parent; /* KV_NO_BLOCK: the first block of a prompt */
    uint64_t space;  /* see kv_key: an adapter and a salt */
    const uint64_t *keys;
    uint32_t n;
    bool local; /* no part of the order: see kv_offload.h */
};

struct kv_order {
    struct kv_node {
        struct kv_content is;
        uint32_t left, right;
        uint64_t height; /* random: a parent's is the largest of its subtree */
    } * v;
    uint32_t root;
};

bool kv_order_init(struct kv_order *o, uint32_t n_blocks, uint64_t seed); /* false: no memory */
void kv_order_free(struct kv_order *o);
/* `is->keys` must stay as it is until the block is dropped; no other block has the same. */
void kv_order_put(struct kv_order *o, uint32_t id, const struct kv_content *is);
void kv_order_drop(struct kv_order *o, uint32_t id);

struct kv_near {
    uint32_t before, after; /* `after` holds the same or more; KV_NO_BLOCK: none of that parent */
};
/* The neighbours of `is`: none has more tokens in common with it than one of them. */
struct kv_near kv_order_near(const struct kv_order *o, const struct kv_content *is);
uint32_t kv_order_common(const struct kv_order *o, uint32_t id, const struct kv_content *is);

/* The first block in order, and the one after `is`; for tests. */
uint32_t kv_order_next(const struct kv_order *o, const struct kv_content *is); /* NULL: the first */
#endif
