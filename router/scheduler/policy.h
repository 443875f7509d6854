/* policy.h - the queue, and which requests join the next step with how many prompt tokens.
 *
 * Pure: it reads the queue, the block accounting and the time it is given, and does no I/O. So a
 * test can replay traffic. The scheduler thread is the only caller.
 *
 * A step computes at most `prefill_tokens` tokens: one for each running request, the rest for
 * prompts. load.prompt_tokens may limit the prompt share further, to keep inter-token latency.
 * Requests join in the order of fair.h, with these exceptions:
 *   - A request that cannot get its KV blocks or adapter pages yet is passed by requests that
 *     can, at most `max_passed` times or for `max_passed_ns`. After that none joins before it.
 *   - A prompt too long for the rest of the step is cut (chunked prefill) and joins last. It
 *     leaves up to half of the step to shorter prompts after it.
 *   - While prompts that were cut fill whole steps, another joins if it fits into half a step;
 *     also if it is less than half as long as any of them.
 *   - If it is the turn of an account that runs nothing, only accounts that run nothing join.
 *     Prompts that were cut get at most as many tokens as theirs, or a quarter of the budget. So
 *     an account with few requests waits for the running step and for a step of its own, whatever
 *     others have queued. No two steps in a row are such steps. While accounts compete, running
 *     requests and the other steps are bounded (contest.h).
 *   - An image with bidirectional attention is never cut. A prompt stops in front of it, or, if
 *     no other prompt is computed, takes all of it even beyond the step's budget.
 *   - A prompt whose recurrent state is to be kept stops there (kv_stop()) and resumes in the
 *     next step.
 *   - A peer that cannot chunk gets whole prompts. Running requests are interrupted only when
 *     enough requests wait (waiting_served_ratio) or have waited long enough
 *     (max_waiting_tokens).
 *
 * Among prompts that were cut, the one with the fewest tokens left goes first; a quarter of the
 * budget is reserved for the oldest.
 *
 * If blocks are allocated on demand, a request reserves those of its prompt and a few more. It
 * joins only while running requests keep some free blocks to grow into. When no block is free, the
 * running request that policy_outranks() ranks last is preempted. It waits again, and no request
 * that it outranks passes it. The order is total and never changes, so the first in it always
 * finishes. */
#ifndef ROUTER_SCHEDULER_POLICY_H
#define ROUTER_SCHEDULER_POLICY_H
#include "router/scheduler/adapters.h"
#include "router/scheduler/fair.h"
#include "router/scheduler/kv/blocks.h"

struct policy_limits {
    uint32_t prefill_tokens; /* tokens per step */
    uint32_t batch_size;     /* requests; 0: unlimited */
    bool chunking;
    bool grows;                  /* blocks are allocated on demand */
    double waiting_served_ratio; /* without chunking only */
    uint32_t max_waiting_tokens; /* decode steps; without chunking only */
    uint32_t max_passed;         /* times; 0: POLICY_MAX_PASSED */
    int64_t max_passed_ns;       /* ns since it was first passed; 0: POLICY_MAX_PASSED_NS */
};
enum { POLICY_MAX_PASSED = 64 };
/* Limits the image bytes of the joiners of one step, beyond the first: a gRPC message holds less
 * than 2 GiB. */
#define POLICY_MAX_BYTES     (UINT64_C(256) << 20)
#define POLICY_MAX_PASSED_NS INT64_C(2000000000)

/* Embedded in a waiting request. */
struct waiter {
    struct fair_item fair; /* its creator sets priority and order */
    uint64_t tenant;       /* the account it is charged to */
    struct kv_key key;     /* the prompt */
    uint32_t n_reserve;    /* tokens to reserve blocks for */
    /* Tokens [swap_from, swap_to) lie in the host's swap region; swap_to 0: none. When the request
     * joins they count as computed if the tokens before them are cached. Then kv->n_cached is
     * swap_to, and full blocks from kv->n_sealed on must be copied from there. */
    uint32_t swap_from, swap_to;
    uint64_t n_bytes;      /* image bytes in the message that it joins with */
    bool share;            /* may read and fill the prefix cache */
    bool awaited;          /* other requests wait for the same prompt */
    struct kv_table *kv;   /* filled when it joins */
    uint32_t passed;       /* how often a newer request joined first */
    int64_t passed_ns;     /* clock_ns() of the first time */
    uint64_t tried;        /* kv_stats.releases + 1 when its last block allocation failed */
    bool adapted;          /* counted among its adapter's running requests */
    bool returned;         /* it ran and was preempted: no request it outranks passes it */
    struct waiter *behind; /* next in the list of preempted requests */
    /* prompt tokens left to compute */
    uint32_t left; /* prompt tokens left to compute at the last look-up */
};

struct policy {
    struct policy_limits limits;
    struct kv_blocks *kv;
    struct adapter_accounts *adapters;
    struct fair fair;
    struct waiter *returned; /* the preempted ones, by rank */
    struct waiter *next_up;  /* passed too often: none joins before it */
    bool newcomers_last;     /* in the last step only accounts that ran nothing joined */
};

struct started { /* a prompt that is partly computed */
    uint32_t left;
    uint32_t stop;  /* most of them in this step; 0: all */
    uint32_t n_now; /* output: tokens of it in this step */
    uint32_t at;    /* tokens computed so far */
    struct kv_media media;
};
struct load { /* what runs now */
    uint32_t n_running;
    uint32_t n_tokens;      /* tokens of the next step, without those of `started` */
    uint32_t prompt_tokens; /* most prompt tokens in this step; 0: as many as fit */
    /* While accounts compete (contest.h): most running requests, beside which only newcomers join,
     * and most prompt tokens in a step without newcomers. 0: no bound. */
    uint32_t rows_most, shared_tokens;
    uint32_t steps_since_join;
    uint32_t keep_free;      /* if `grows`: blocks that newcomers leave free for running requests */
    struct started *started; /* oldest first; none for a peer that sizes its chunks itself */
    uint32_t n_started;
};
struct joiner {
    struct waiter *w;  /* w->kv holds its blocks; it no longer waits */
    uint32_t n_tokens; /* prompt tokens after w->kv->n_cached to compute in this step */
    bool cut;          /* more of the prompt is left */
    bool newcomer;     /* its account runs nothing, and others run */
};

/* Copies the limits; `kv` and `adapters` must outlive it. */
void policy_init(struct policy *p, const struct policy_limits *l, struct kv_blocks *kv,
                 struct adapter_accounts *adapters);
void policy_free(struct policy *p); /* no request may be left */
/* Enqueues `w`, also one that ran before. False: out of memory. */
bool policy_add(struct policy *p, struct waiter *w);
void policy_remove(struct policy *p, struct waiter *w); /* removes a waiting one from the queue */
void policy_forget(struct policy *p, struct waiter *w); /* it neither waits nor runs any more */
struct waiter *policy_any(const struct policy *p);      /* any waiting request, or NULL */
static inline uint32_t policy_waiting(const struct policy *p) { return p->fair.n_waiting; }
/* It no longer runs, or its step failed: its adapter may be evicted. */
void policy_leaves(struct policy *p, struct waiter *w);
/* Marks a preempted request: none joins before it, except preempted ones that outrank it. */
void policy_return(struct policy *p, struct waiter *w);
/* True if `b` is preempted before `a`. By priority, then by arrival. */
bool policy_outranks(const struct waiter *a, const struct waiter *b);

/* Plans the next step: fills at most `cap` rows of `out` and sets n_now of the `started` ones.
 * Returns the number of joiners. A prompt cut for lack of budget is the last row, unless images
 * stay whole. */
uint32_t policy_join(struct policy *p, const struct load *l, int64_t now_ns, struct joiner *out,
                     uint32_t cap);
#endif
