/* kv_pool.h - how many KV blocks and cells of recurrent state this rank has memory for. */
#ifndef MODEL_SERVER_ENGINE_KV_POOL_H
#define MODEL_SERVER_ENGINE_KV_POOL_H
#include "common/err.h"
#include "model-server/comm/comm.h"
#include <stdbool.h>
#include <stdint.h>

struct kv_memory {
    uint64_t free, total; /* of the device, after weights and scratch */
    bool shared;          /* all ranks share this memory (CPU) */
    uint32_t world;
    double fraction; /* share of the device that one service may use (CUDA_MEMORY_FRACTION) */
    double limit;    /* 0: none; up to 1: share of what is free; above: bytes on this rank */
    uint64_t block_bytes;
    uint32_t block_size;
    /* If layers with a window of `window` tokens have a separate cache: size of one of its
     * blocks, which block_bytes excludes. Else 0. `prefill`: tokens of the largest step. */
    uint64_t window_bytes;
    uint32_t window, prefill;
    uint32_t longest;    /* most tokens of a request; 0: unknown */
    uint64_t cell_bytes; /* of recurrent state; 0: the model has none */
    uint32_t requests;   /* of the largest batch */
};

struct kv_plan {
    uint32_t n_blocks, n_cells, n_windows; /* n_windows: blocks of the sliding-window cache */
    uint64_t bytes;                        /* of both kinds of blocks */
    const char *why; /* the limit: "free memory", "--kv-cache-memory", "as many as can be used" */
};

/* Pure. n_blocks is 0 if nothing fits. Cells for the largest batch, or for 64 requests (two each,
 * and one for a snapshot) come from the same memory, and may use half of it.
 *
 * The sliding-window cache holds the prompts of one step. In addition it holds two windows for
 * each request of typical length: its own, and one of a cached prefix. The typical length is that
 * of the longest request, at most 8192 tokens or eight windows. */
struct kv_plan kv_plan(const struct kv_memory *m);
/* True if a separate cache for layers with a window of `window` tokens pays, for requests of up
 * to `longest` tokens (0: unknown). Pure. */
bool kv_windows_pay(uint32_t window, uint32_t longest);
/* Bytes of a request of this many tokens, including a chunk of its prompt in the step. Pure. */
uint64_t kv_request_bytes(const struct kv_memory *m, uint32_t tokens);
/* Sets an error that lists what uses the memory of a device that is too small, and which options
 * reduce it. Always returns -1. */
struct kv_short {
    uint64_t total, weights, workspaces, left; /* bytes; left: available for the cache */
    uint64_t longest, longest_bytes;           /* tokens and bytes of the longest request */
    uint32_t largest;                          /* most tokens that fit; 0: none */
};
int kv_too_little(const struct kv_short *s, struct err *e);
/* Reduces *n_blocks to the minimum over all ranks; all ranks call it. */
int kv_agree(struct comm *c, uint32_t *n_blocks, struct err *e);
#endif
