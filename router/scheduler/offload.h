/* offload.h - when blocks of the prefix tree are stored to the shards' memory and disk tiers, and
 * when a request waits for blocks from there.
 *
 * Store: between two steps, a KvStore call names blocks that have become cache. While requests run,
 * these calls take at most a twentieth of the time. A block evicted before it is stored is lost.
 *
 * Fetch: a new request whose prompt continues beyond the cached prefix stays outside the queue
 * while KvFetch reads, concurrently with steps. A KvLoad between two steps then loads the blocks
 * found. They join the prefix tree, and admission of the request hits them. One request is served
 * at a time. It waits at most as long as computing the prompt would take. A later answer is
 * ignored, and fetching pauses for a while. No failure here fails a request. */
#ifndef ROUTER_SCHEDULER_OFFLOAD_H
#define ROUTER_SCHEDULER_OFFLOAD_H
#include "router/scheduler/kv/offload.h"
#include "router/scheduler/seq.h"
#include "router/shards/shards.h"

enum offload_state {
    OFFLOAD_IDLE,
    OFFLOAD_FETCHING, /* `fan` is in flight, for `head` */
    OFFLOAD_READY,    /* the answer is here: blocks are loaded before the next step */
    OFFLOAD_LOADING   /* the call in flight loads into `table` */
};
enum { OFFLOAD_MOST = 64 }; /* most blocks in one KvStore */

struct offload_counts { /* the shards' counters at the last report */
    uint64_t memory_evictions, disk_evictions, damaged, foreign, failed_writes, written;
};

struct offload {
    bool on;
    struct fan fan;
    enum offload_state state;
    struct seq *head, **tail; /* queue of waiting requests; the first is being served */
    uint64_t id;              /* of the last fetch */
    /* of `head`: */
    uint8_t (*keys)[KV_CHAIN];
    uint32_t n_keys, from; /* keys of all its blocks; those from `from` on are requested */
    uint8_t *parts;        /* [n_parts] what was found */
    uint32_t n_parts;
    bool more;
    bool asked_peer;   /* the fetch names a peer */
    bool peer_is_done; /* and does not ask it again */
    struct kv_table table;
    /* storing: */
    bool kept;    /* this service keeps its blocks for a peer */
    bool storing; /* the call in flight is a KvStore */
    struct kv_spill spill[OFFLOAD_MOST];
    uint32_t n_spill;
    uint32_t urgent; /* of the blocks that wait to be stored: the first ones, asked for by a peer */
    int64_t store_after_ns, fetch_after_ns; /* clock_ns(): earliest next call */
    bool behind;                            /* the shards had no memory for the last blocks */
    bool timer;                             /* `again` is armed */
    struct rpc_op again;
    uint64_t n_lost;
    struct offload_counts seen;
};

struct scheduler;
/* also called for new shards */
int offload_init(struct scheduler *s, struct shards *of, struct err *e);
void offload_free(struct scheduler *s); /* frees the fan: no call may be in flight */
/* A new request: it waits for its blocks, or enters the queue. */
void offload_enqueue(struct scheduler *s, struct seq *q);
void offload_cancel(struct scheduler *s, struct seq *q); /* `q` was FETCHING */
/* Sends the call that is due. False: none. */
bool offload_turn(struct scheduler *s);
void offload_answered(struct scheduler *s, bool ok); /* that call returned */
/* Cached blocks are, or may be, gone: nothing is loaded, and waiting requests enter the queue. */
void offload_forget(struct scheduler *s);
/* Ends all waiting requests with this error. */
void offload_fail_all(struct scheduler *s, const struct err *why);
#endif
