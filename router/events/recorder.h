/* recorder.h - what a prefix tree gains and loses, as vLLM's KV events in msgpack.
 *
 * Blocks that follow each other become one BlockStored with the parent of the first, as vLLM's
 * engine says them. Events are maps whose `type` says which they are (vLLM's form since its pull
 * request 42892). A hash is opaque to consumers: they key by tokens. Pure; one thread. */
#ifndef ROUTER_EVENTS_RECORDER_H
#define ROUTER_EVENTS_RECORDER_H
#include "common/buf.h"
#include <stdint.h>

struct kv_recorder { /* zero-initialise, then set block_tokens */
    uint32_t block_tokens;
    struct buf events; /* n of them, in msgpack */
    uint32_t n;
    /* the run of stored blocks that is not in `events` yet */
    struct buf hashes, tokens;
    uint32_t n_run;
    uint64_t parent, last;
    bool has_parent;
};
void kv_recorder_free(struct kv_recorder *r);
/* A block of block_tokens tokens, of which the lower 32 bits are ids. `parent` NULL: the first of a
 * prompt. */
void kv_recorder_stored(struct kv_recorder *r, uint64_t hash, const uint64_t *parent,
                        const uint64_t *tokens);
void kv_recorder_removed(struct kv_recorder *r, uint64_t hash);
void kv_recorder_cleared(struct kv_recorder *r); /* all are gone */
/* What happened since the last call, as one batch: [time, [events], rank]; false: nothing. Appends
 * to `out`. */
bool kv_recorder_take(struct kv_recorder *r, double unix_time, uint32_t rank, struct buf *out);
#endif
