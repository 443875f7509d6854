/* wire.h - what the scheduler decided, as messages of generate.v3. Pure: builds in `m`, sends
 * nothing. Every function returns NULL when `m` is full. */
#ifndef ROUTER_SCHEDULER_WIRE_H
#define ROUTER_SCHEDULER_WIRE_H
#include "common/rpc_pack.h"
#include "proto/generate.pb-c.h"
#include "router/scheduler/seq.h"

struct wire_peer {         /* what the shards understand */
    bool takes_input_ids;  /* token ids go instead of text, blocks without slots */
    bool requires_padding; /* neither blocks nor slots */
    uint32_t block_size, speculate;
    bool takes_chunks; /* prompts that are cut compute what the call says */
    bool windows;      /* it has a cache of windows */
};

struct wire_batch { /* a batch the shards hold */
    uint64_t id;
    uint32_t size, max_tokens, current_tokens;
};

struct wire_moves { /* KV blocks to or from slots of the swap region */
    const uint32_t *blocks, *slots;
    uint32_t n;
};
struct wire_edits { /* of the running batch, before the step; for peers that take them */
    const uint64_t *leave;
    uint32_t n_leave;
    const struct wire_save { /* the state of request `id` behind `tokens` tokens, into `cell` */
        uint64_t id;
        uint32_t cell, tokens;
    } * saves;
    uint32_t n_saves;
    struct wire_moves out, in;
    struct seq *const *grown; /* the shards know n_blocks_sent and n_windows_sent of their blocks */
    uint32_t n_grown;
    const struct wire_draft { /* what q may go on with from q->n_tokens on */
        const struct seq *q;
        const uint32_t *ids;
        uint32_t n;
    } * drafts;
    uint32_t n_drafts;
    bool drafting; /* there may be more before the next step */
};

/* `cached` NULL: the new ones stand alone. The blocks that they begin with a copy of come along. */
const ProtobufCMessage *wire_prefill(const struct wire_peer *p, uint64_t id,
                                     struct seq *const *joining, uint32_t n,
                                     const struct wire_batch *cached, const struct wire_edits *x,
                                     struct rpc_mem *m);
/* Edits that change nothing, and NULL, cost nothing on the wire. */
const ProtobufCMessage *wire_decode(const struct wire_batch *const *batches, uint32_t n,
                                    const struct wire_edits *x, struct rpc_mem *m);
/* To a Prefill or Decode of a peer that takes chunks: of the `n` in `running`, those in the middle
 * of their prompt compute `n_now` tokens of it; `encode_most`: see Edits. NULL: no memory, or no
 * call. */
const ProtobufCMessage *wire_chunks(const ProtobufCMessage *call, struct seq *const *running,
                                    uint32_t n, uint64_t encode_most, struct rpc_mem *m);
/* Keeps the n_keep requests in `keep`; NULL and 0: clears the batch. */
const ProtobufCMessage *wire_filter(uint64_t batch, const uint64_t *keep, uint32_t n_keep,
                                    struct rpc_mem *m);
const ProtobufCMessage *wire_clear(const uint64_t *batch, struct rpc_mem *m); /* NULL: all */

/* TGI's liveness probe: one token, block 0, no cache left behind. */
#define WIRE_PROBE_ID UINT64_MAX
const ProtobufCMessage *wire_probe(const struct wire_peer *p, struct rpc_mem *m);
#endif
