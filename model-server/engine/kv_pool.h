/* kv_pool.h - how many KV blocks and cells of recurrent state this rank can offer. */
#ifndef MODEL_SERVER_ENGINE_KV_POOL_H
#define MODEL_SERVER_ENGINE_KV_POOL_H
#include "common/err.h"
#include "model-server/comm/comm.h"
#include <stdbool.h>
#include <stdint.h>

struct kv_memory {
    uint64_t free, total; /* of the device, weights and scratch already taken */
    bool shared;          /* all ranks live in this memory (CPU) */
    uint32_t world;
    double fraction; /* share of the device that one service may use (CUDA_MEMORY_FRACTION) */
    double limit;    /* 0: none; up to 1: share of what is free; above: bytes on this rank */
    uint64_t block_bytes;
    uint32_t block_size;
    /* Where layers that see `window` tokens have a cache of their own: of a block of that, which
     * block_bytes is without. Else 0. `prefill`: tokens of the largest step. */
    uint64_t window_bytes;
    uint32_t window, prefill;
    uint32_t longest;    /* tokens that one request may come to; 0: not known */
    uint64_t cell_bytes; /* of recurrent state; 0: the model has none */
    uint32_t requests;   /* of the largest batch */
};

struct kv_plan {
    uint32_t n_blocks, n_cells, n_windows; /* n_windows: blocks of the cache of windows */
    uint64_t bytes;                        /* of both kinds of blocks */
    const char
        *why; /* what decided: "free memory", "--kv-cache-memory", "as many as can be used" */
};

/* Pure. n_blocks may be 0: there is no room. Cells for the largest batch, or for 64 requests, two
 * each and one for a snapshot, come out of the same memory, half of which they may take.
 *
 * A cache of windows has what one step's prompts take, and for each request of typical length two
 * windows: its own, and one of a cached beginning. Typical is the longest request, but at most 8192
 * tokens or eight windows. */
struct kv_plan kv_plan(const struct kv_memory *m);
/* Is it worth a cache of its own that layers see `window` tokens of requests of up to `longest`
 * tokens (0: not known)? Pure. */
bool kv_windows_pay(uint32_t window, uint32_t longest);
/* What a request of so many tokens takes, with a chunk of its prompt in the step. Pure. */
uint64_t kv_request_bytes(const struct kv_memory *m, uint32_t tokens);
/* Who takes what of a device whose memory does not do, and which option takes less: always -1. */
struct kv_short {
    uint64_t total, weights, workspaces, left; /* bytes; left: for the cache */
    uint64_t longest, longest_bytes;           /* a request of so many tokens, and what it takes */
    uint32_t largest;                          /* that fits, in tokens; 0: none */
};
int kv_too_little(const struct kv_short *s, struct err *e);
/* The smallest number that any rank can offer; all ranks call it. */
int kv_agree(struct comm *c, uint32_t *n_blocks, struct err *e);
#endif
