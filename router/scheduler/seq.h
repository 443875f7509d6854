/* seq.h - the scheduler's state of one request.
 *
 * A seq outlives its gen_request. The creator may free the gen_request after the last event, while
 * the blocks stay reserved until no step on the shards writes them. A seq stores every token of the
 * stream, prompt first: the router, not a shard, is the source of truth for what was generated. All
 * functions run on the scheduler thread, except seq_new(). */
#ifndef ROUTER_SCHEDULER_SEQ_H
#define ROUTER_SCHEDULER_SEQ_H
#include "router/request/request.h"
#include "router/scheduler/kv/blocks.h"
#include "router/scheduler/policy.h"

/* FOLLOWING: not queued yet; another request computes the same prompt
 *   FETCHING:  not queued yet; its blocks are read from a cache tier (offload.h)
 *   WAITING -> JOINING -> RUNNING -> LEAVING -> GOING -> freed
 *   (queued)   (Prefill   (in a      (ended;    (that call
 *               in         batch of   the next   is in
 *               flight)    the        call       flight)
 *                          shards)    drops it) */
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
    struct gen_request *req; /* NULL: the last event was sent */
    uint64_t id;
    uint64_t leads;        /* id + 1 of an earlier request with the same prompt; 0: none */
    struct seq *chain;     /* bucket list of seq_table */
    struct seq *next;      /* list of dropped seqs, or of the followers of one leader */
    struct seq *followers; /* seqs with the same prompt that wait for its KV; newest first */
    struct seq *leader;    /* FOLLOWING: the seq whose KV it waits for */
    struct kv_table kv;
    struct draft_seq *draft_seq; /* owned by router/draft; NULL: none */
    enum seq_state state;
    bool placed;    /* counted in s->n_placed: the client is sent its queue position */
    bool gone;      /* the client left while it was JOINING or its blocks were loading */
    bool cut;       /* JOINING: this Prefill computes only a part of the prompt */
    uint32_t stop;  /* position where the prompt stops next to snapshot its state; see kv_stop() */
    uint32_t n_now; /* prompt tokens in the step that is in flight */
    uint32_t batch; /* RUNNING and later: index into the shards' batches */
    uint32_t n_prompt, n_tokens, cap_tokens;
    uint32_t n_computed;      /* tokens whose KV is known to be computed */
    uint32_t n_most;          /* most tokens whose KV the request can ever need */
    uint32_t n_blocks_sent;   /* blocks of `kv` that the shards are known to have received */
    uint32_t n_windows_sent;  /* the same, for blocks that have a window block */
    uint32_t n_preempted;     /* number of preemptions and shard losses */
    uint32_t n_lost;          /* number of shard losses while it ran */
    uint32_t n_exported;      /* if `exports`: leading blocks offered for storing so far */
    bool exports;             /* its prompt's blocks are stored for another service */
    uint32_t n_loaded;        /* tokens whose KV came from a lower tier or another service */
    int64_t token_ns;         /* time of its newest token; 0: none */
    uint32_t *slots, n_slots; /* in the swap region, for the blocks from waiter.swap_from on */
    struct kv_medium *media;  /* [n_media] images of the prompt; NULL: none */
    uint32_t n_media;
    uint32_t tokens[];
};

/* Creates a seq. It copies the prompt, the tokens generated so far (r->resume) and the positions of
 * the images; `r` is needed later only for parameters and image data. `speculate`: draft tokens per
 * step. NULL: out of memory. */
struct seq *seq_new(struct gen_request *r, uint64_t id, uint32_t speculate);
/* The images of `q`, for a kv_key. Points into `q`. */
struct kv_media seq_media(const struct seq *q);
void seq_free(struct seq *q); /* its blocks must have been released */
/* Appends a generated token. Tokens beyond the capacity are dropped. */
void seq_push(struct seq *q, uint32_t token);

/* True while the prompt is computed, and while a preempted sequence is recomputed. */
static inline bool seq_in_prompt(const struct seq *q)
{
    return q->n_tokens == q->waiter.key.n && q->n_computed < q->n_tokens;
}
/* Tokens whose KV is not computed yet, and tokens generated so far. */
static inline uint32_t seq_left(const struct seq *q) { return q->n_tokens - q->n_computed; }
static inline uint32_t seq_generated(const struct seq *q) { return q->n_tokens - q->n_prompt; }

/* id -> seq, for every request in the scheduler. */
struct seq_table {
    struct seq *bucket[1024];
    uint32_t n;
};
void seq_table_add(struct seq_table *t, struct seq *q); /* its id is not in the table yet */
void seq_table_remove(struct seq_table *t, struct seq *q);
struct seq *seq_table_find(const struct seq_table *t, uint64_t id); /* NULL: unknown */
#endif
