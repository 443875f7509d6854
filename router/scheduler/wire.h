/* wire.h - encodes the scheduler's decisions as generate.v3 messages. Pure: it allocates in `m` and
 * sends nothing. Every function returns NULL when `m` is full. */
#ifndef ROUTER_SCHEDULER_WIRE_H
#define ROUTER_SCHEDULER_WIRE_H
#include "common/rpc/pack.h"
#include "proto/generate.pb-c.h"
#include "router/scheduler/seq.h"

struct wire_peer {         /* what the shards support */
    bool takes_input_ids;  /* token ids instead of text, blocks without slots */
    bool requires_padding; /* neither blocks nor slots */
    uint32_t block_size, speculate;
    bool takes_chunks; /* the call says how many tokens a partly computed prompt computes */
    bool windows;      /* it has a window cache */
};

struct wire_batch { /* a batch the shards hold */
    uint64_t id;
    uint32_t size, max_tokens, current_tokens;
};

struct wire_moves { /* KV blocks copied to or from slots of the swap region */
    const uint32_t *blocks, *slots;
    uint32_t n;
};
struct wire_edits { /* changes to the running batch before the step; for peers that take edits */
    const uint64_t *leave;
    uint32_t n_leave;
    const struct wire_save { /* save the state of request `id` after `tokens` tokens into `cell` */
        uint64_t id;
        uint32_t cell, tokens;
    } * saves;
    uint32_t n_saves;
    struct wire_moves out, in;
    /* the shards have the first n_blocks_sent and n_windows_sent block numbers of each */
    struct seq *const *grown;
    uint32_t n_grown;
    const struct wire_draft { /* draft tokens of q that start at position q->n_tokens */
        const struct seq *q;
        const uint32_t *ids;
        uint32_t n;
    } * drafts;
    uint32_t n_drafts;
    bool drafting; /* more drafts may follow before the next step */
};

/* The images or texts of a prompt, [n] messages. */
Generate__V3__Media **wire_media(const struct gen_medium *media, uint32_t n, struct rpc_mem *m);
/* `cached` NULL: the new requests form a batch of their own. The message includes block copies that
 * `joining` need first. */
const ProtobufCMessage *wire_prefill(const struct wire_peer *p, uint64_t id,
                                     struct seq *const *joining, uint32_t n,
                                     const struct wire_batch *cached, const struct wire_edits *x,
                                     struct rpc_mem *m);
/* Edits that change nothing, and NULL, add no bytes. */
const ProtobufCMessage *wire_decode(const struct wire_batch *const *batches, uint32_t n,
                                    const struct wire_edits *x, struct rpc_mem *m);
/* For peers that take chunks: adds to a Prefill or Decode that sequences of `running` in the middle
 * of their prompt compute `n_now` tokens. `encode_most`: see Edits. NULL: out of memory, or `call`
 * is NULL. */
const ProtobufCMessage *wire_chunks(const ProtobufCMessage *call, struct seq *const *running,
                                    uint32_t n, uint64_t encode_most, struct rpc_mem *m);
/* Keeps the n_keep requests in `keep`; NULL and 0: clears the batch. */
const ProtobufCMessage *wire_filter(uint64_t batch, const uint64_t *keep, uint32_t n_keep,
                                    struct rpc_mem *m);
/* NULL: all batches */
const ProtobufCMessage *wire_clear(const uint64_t *batch, struct rpc_mem *m);

/* TGI's liveness probe: one token in block 0 that leaves nothing in the cache. */
#define WIRE_PROBE_ID UINT64_MAX
const ProtobufCMessage *wire_probe(const struct wire_peer *p, struct rpc_mem *m);
#endif
