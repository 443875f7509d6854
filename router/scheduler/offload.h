/* offload.h - when blocks of the prefix tree leave for the shards' memory and folder, and when a
 * request waits for blocks from there.
 *
 * Out: between two steps a KvStore names blocks that have become cache. While requests run these
 * calls take a twentieth of the time at most. A block that is evicted before its turn is lost.
 *
 * In: a new request whose prompt goes on behind what is cached stays outside of the queue while
 * KvFetch reads (beside the steps). What was found is loaded by a KvLoad between two steps, joins
 * the tree, and the request then finds it there. One request at a time; it waits at most as long as
 * computing the prompt would take. A fetch that is later than that is not waited for, and for a
 * while there is none. Nothing of this can fail a request. */
#ifndef ROUTER_SCHEDULER_OFFLOAD_H
#define ROUTER_SCHEDULER_OFFLOAD_H
#include "router/scheduler/kv_offload.h"
#include "router/scheduler/seq.h"
#include "router/shards/shards.h"

enum offload_state {
    OFFLOAD_IDLE,
    OFFLOAD_FETCHING, /* `fan` is out, for `head` */
    OFFLOAD_READY,    /* it is back: to be loaded before the next step */
    OFFLOAD_LOADING   /* the call that is out loads into `table` */
};
enum { OFFLOAD_MOST = 64 }; /* blocks of a KvStore */

struct offload_counts { /* the shards' counters, as they were last told */
    uint64_t memory_evictions, disk_evictions, damaged, foreign, failed_writes, written;
};

struct offload {
    bool on;
    struct fan fan;
    enum offload_state state;
    struct seq *head, **tail; /* those that wait, in order; the first is being served */
    uint64_t id;              /* of the last fetch */
    /* of `head`: */
    uint8_t (*keys)[KV_CHAIN];
    uint32_t n_keys, from; /* keys of all its blocks; those from `from` on are asked for */
    uint8_t *parts;        /* [n_parts] of what was found */
    uint32_t n_parts;
    bool more;
    bool asked_peer;   /* the fetch names a peer */
    bool peer_is_done; /* and it is not asked again */
    struct kv_table table;
    /* out */
    bool kept;    /* it keeps its blocks for a peer */
    bool storing; /* the call that is out is a KvStore */
    struct kv_spill spill[OFFLOAD_MOST];
    uint32_t n_spill;
    uint32_t
        urgent; /* of the blocks that wait to be stored, the first ones: a peer asks for them */
    int64_t store_after_ns, fetch_after_ns; /* not before */
    bool behind;                            /* the shards had no memory for the last blocks */
    bool timer;                             /* `again` is armed */
    struct rpc_op again;
    uint64_t n_lost;
    struct offload_counts seen;
};

struct scheduler;
int offload_init(struct scheduler *s, struct shards *of, struct err *e); /* also again */
void offload_free(struct scheduler *s); /* the fan: no call is out */
/* A new request: it waits for its blocks, or goes into the queue. */
void offload_enqueue(struct scheduler *s, struct seq *q);
void offload_cancel(struct scheduler *s, struct seq *q); /* it was FETCHING */
/* Sends the call that is due, if any. */
bool offload_turn(struct scheduler *s);
void offload_answered(struct scheduler *s, bool ok); /* that call is back */
/* What is cached is gone, or may be: nothing is loaded, and those that wait go into the queue. */
void offload_forget(struct scheduler *s);
void offload_fail_all(struct scheduler *s, const struct err *why);
#endif
