/* seq.h - one request as the scheduler sees it.
 *
 * It outlives the gen_request: after the last event the creator may free that, while the blocks are
 * ours until the shards write them no more. It holds every token of the stream, prompt first: the
 * router, not a shard, is the source of truth of what was generated. Scheduler thread only, but for
 * seq_new(). */
#ifndef ROUTER_SCHEDULER_SEQ_H
#define ROUTER_SCHEDULER_SEQ_H
#include "router/request/request.h"
#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/policy.h"

/*  FOLLOWING: not in the queue yet; another request computes the same prompt
 *  FETCHING:  not in the queue yet; its blocks are read (offload.h)
 *  WAITING -> JOINING -> RUNNING -> LEAVING -> GOING -> freed
 *  (in the    (its       (in a      (ended:    (that call
 *   queue)     Prefill    batch of   the next   is on its
 *              is on its  the        call drops way)
 *              way)       shards)    it)                     */
enum seq_state {
    SEQ_FOLLOWING,
    SEQ_FETCHING,
    SEQ_WAITING,
    SEQ_JOINING,
    SEQ_RUNNING,
    SEQ_LEAVING,
    SEQ_GOING
};

struct seq {
    struct waiter waiter;
    struct gen_request *req; /* NULL: has had its last event */
    uint64_t id;
    uint64_t leads;        /* id + 1 of a request with the same prompt that came before; 0: none */
    struct seq *chain;     /* in seq_table */
    struct seq *next;      /* among the dropped, or the followers of one */
    struct seq *followers; /* have the same prompt, and wait for its KV; newest first */
    struct seq *leader;    /* FOLLOWING: whose follower it is */
    struct kv_table kv;
    struct draft_seq *draft_seq; /* router/draft's; NULL: none */
    enum seq_state state;
    bool placed;    /* its client gets its place in the queue */
    bool gone;      /* the client left while it was JOINING, or its blocks were loaded */
    bool cut;       /* JOINING: not the whole prompt */
    uint32_t stop;  /* where its prompt stops next, so that its state can be kept; see kv_stop() */
    uint32_t n_now; /* prompt tokens in the step that is out */
    uint32_t batch; /* RUNNING and later: which of the shards' batches */
    uint32_t n_prompt, n_tokens, cap_tokens;
    uint32_t n_computed;      /* tokens whose KV is certainly there */
    uint32_t n_most;          /* tokens whose KV it may come to: more than all is never needed */
    uint32_t n_blocks_sent;   /* blocks of kv that the shards certainly know of */
    uint32_t n_windows_sent;  /* the same of those that have a block of windows */
    uint32_t n_preempted;     /* times it was preempted, or its shards were lost */
    uint32_t n_lost;          /* times they were lost while it ran */
    uint32_t n_exported;      /* where `exports`: leading blocks that were offered */
    bool exports;             /* its prompt's blocks are kept for another service */
    uint32_t *slots, n_slots; /* in the swap region, for the blocks from waiter.swap_from on */
    struct kv_medium *media;  /* [n_media] of the prompt; NULL: none */
    uint32_t n_media;
    uint32_t tokens[];
};

/* Copies the prompt, what r->resume says was generated, and where its pictures are, so that `r` is
 * needed for its parameters and the pictures themselves only. NULL: out of memory. */
struct seq *seq_new(struct gen_request *r, uint64_t id, uint32_t speculate);
/* For kv_key. */
struct kv_media seq_media(const struct seq *q);
void seq_free(struct seq *q); /* its blocks were released */
void seq_push(struct seq *q, uint32_t token);

/* In the middle of its prompt, or of what it computes again after it was preempted? */
static inline bool seq_in_prompt(const struct seq *q)
{
    return q->n_tokens == q->waiter.key.n && q->n_computed < q->n_tokens;
}
static inline uint32_t seq_left(const struct seq *q) { return q->n_tokens - q->n_computed; }
static inline uint32_t seq_generated(const struct seq *q) { return q->n_tokens - q->n_prompt; }

/* id -> seq, of every request that is known. */
struct seq_table {
    struct seq *bucket[1024];
    uint32_t n;
};
void seq_table_add(struct seq_table *t, struct seq *q);
void seq_table_remove(struct seq_table *t, struct seq *q);
struct seq *seq_table_find(const struct seq_table *t, uint64_t id); /* NULL: unknown */
#endif
