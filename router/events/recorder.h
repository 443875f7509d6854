/* recorder.h - records changes of a prefix tree as vLLM's KV events in msgpack.
 *
 * Consecutive blocks become one BlockStored with the parent of the first, as in vLLM's engine.
 * Events are maps with a member `type` (vLLM's format since its pull request 42892). Hashes are
 * opaque to consumers, which index by tokens. Pure; one thread. */
#ifndef ROUTER_EVENTS_RECORDER_H
#define ROUTER_EVENTS_RECORDER_H
#include "common/buf.h"
#include <stdint.h>

struct kv_recorder { /* zero-initialise, then set block_tokens */
    uint32_t block_tokens;
    struct buf events; /* n events in msgpack */
    uint32_t n;
    /* the current run of stored blocks, not in `events` yet */
    struct buf hashes, tokens;
    uint32_t n_run;
    uint64_t parent, last;
    bool has_parent;
};
void kv_recorder_free(struct kv_recorder *r);
/* A block of block_tokens tokens was stored; the lower 32 bits of each are its id. `parent` NULL:
 * the first block of a prompt. */
void kv_recorder_stored(struct kv_recorder *r, uint64_t hash, const uint64_t *parent,
                        const uint64_t *tokens);
void kv_recorder_removed(struct kv_recorder *r, uint64_t hash);
void kv_recorder_cleared(struct kv_recorder *r); /* all blocks were removed */
/* Appends the events since the last call to `out` as one batch: [time, [events], rank]. False: no
 * events. */
bool kv_recorder_take(struct kv_recorder *r, double unix_time, uint32_t rank, struct buf *out);
#endif
