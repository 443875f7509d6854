/* policy.h - who waits, and who of them joins the next step with how many prompt tokens.
 *
 * Pure: the queue, the block accounting and the clock it is given; no I/O, so that traffic replays
 * in a test. The scheduler thread is the only caller.
 *
 * A step computes at most `prefill_tokens` tokens: one for each running request, the rest for
 * prompts - of those less, where load.prompt_tokens says so, so that running streams keep their
 * pace. Requests join in the order of fair.h, with these exceptions:
 *   - one that cannot get its KV blocks, or room for its adapter, yet is passed by those that can,
 * but only `max_passed` times or `max_passed_ns` long: then none joins before it;
 *   - a prompt too long for the rest of the step is cut (chunked prefill) and joins last, leaving
 * up to half of the step to shorter prompts behind it;
 *   - as long as prompts that were cut take whole steps, others join if they fit into half a step,
 *     or are less than half as long as any of those;
 *   - a picture whose tokens see each other both ways is never cut: a prompt stops in front of it,
 * or, where nothing else is computed of prompts, takes all of it, be the step's budget smaller;
 *   - a prompt whose recurrent state is to be kept stops there (kv_stop()) and goes on in the next
 *     step;
 *   - a peer that cannot chunk gets prompts whole, and running requests are interrupted only when
 *     enough wait (waiting_served_ratio) or long enough (max_waiting_tokens).
 * Of prompts that were cut the shortest rest goes first, but a quarter of what they get is the
 * oldest one's.
 *
 * Where blocks come as they are needed, a request reserves those of its prompt and a few more, and
 * joins only while others that run have some to grow into. When none is left the one that
 * policy_outranks() puts last is preempted, and waits again before all that it outranks: none
 * passes it. The order is total and does not change, so that the first in it runs to its end. */
#ifndef ROUTER_SCHEDULER_POLICY_H
#define ROUTER_SCHEDULER_POLICY_H
#include "router/scheduler/adapters.h"
#include "router/scheduler/fair.h"
#include "router/scheduler/kv_blocks.h"

struct policy_limits {
    uint32_t prefill_tokens; /* per step */
    uint32_t batch_size;     /* 0: no limit */
    bool chunking;
    bool grows;                  /* blocks come as they are needed */
    double waiting_served_ratio; /* without chunking only */
    uint32_t max_waiting_tokens; /* decode steps; without chunking only */
    uint32_t max_passed;         /* 0: POLICY_MAX_PASSED */
    int64_t max_passed_ns;       /* 0: POLICY_MAX_PASSED_NS; counted from the first time */
};
enum { POLICY_MAX_PASSED = 64 };
/* Pictures of one step's joiners, beyond the first: a message of gRPC holds less than 2 GiB. */
#define POLICY_MAX_BYTES     (UINT64_C(256) << 20)
#define POLICY_MAX_PASSED_NS INT64_C(2000000000)

/* Embedded in a request that waits. */
struct waiter {
    struct fair_item fair; /* priority and order are the creator's */
    uint64_t tenant;       /* whose account it is on */
    struct kv_key key;     /* the prompt */
    uint32_t n_reserve;    /* tokens to reserve blocks for */
    /* Tokens [swap_from, swap_to) lie in the host's swap region; swap_to 0: none. When it joins
     * they count as computed, if what stands before them is in the cache: n_cached of `kv` is
     * swap_to then, and full blocks from n_sealed of `kv` on are to be filled from there. */
    uint32_t swap_from, swap_to;
    uint64_t n_bytes;      /* of pictures, in the message that it joins with */
    bool share;            /* may use and fill the prefix cache */
    bool awaited;          /* others wait for the same prompt */
    struct kv_table *kv;   /* filled when it joins */
    uint32_t passed;       /* times a newer one joined first */
    int64_t passed_ns;     /* the first of them */
    uint64_t tried;        /* kv_stats.releases + 1 when its blocks were last asked for in vain */
    bool adapted;          /* its adapter counts it among those that run */
    bool returned;         /* it ran and was preempted: none passes it */
    struct waiter *behind; /* among those that returned */
    uint32_t left;         /* prompt tokens it would have had to compute, when last looked at */
};

struct policy {
    struct policy_limits limits;
    struct kv_blocks *kv;
    struct adapter_accounts *adapters;
    struct fair fair;
    struct waiter *returned; /* those that were preempted, by rank */
    struct waiter *next_up;  /* passed often enough: none joins before it */
};

struct started { /* a prompt of which a part is computed */
    uint32_t left;
    uint32_t stop;  /* of these, at most so many in this step; 0: all */
    uint32_t n_now; /* filled in: tokens of it in this step */
    uint32_t at;    /* so many tokens are computed */
    struct kv_media media;
};
struct load { /* what runs now */
    uint32_t n_running;
    uint32_t n_tokens;      /* it takes in the next step, without `started` */
    uint32_t prompt_tokens; /* at most that many in this step; 0: as many as there is room for */
    uint32_t steps_since_join;
    uint32_t keep_free;      /* grows: blocks that newcomers leave to those that run */
    struct started *started; /* oldest first; none for a peer that sizes its chunks itself */
    uint32_t n_started;
};
struct joiner {
    struct waiter *w;  /* w->kv holds its blocks; it waits no more */
    uint32_t n_tokens; /* of the prompt, behind w->kv->n_cached, to compute in this step */
    bool cut;          /* more of the prompt is left */
};

void policy_init(struct policy *p, const struct policy_limits *l, struct kv_blocks *kv,
                 struct adapter_accounts *adapters);
void policy_free(struct policy *p); /* no request is left */
/* Into the queue; again, for one that ran. False: no memory. */
bool policy_add(struct policy *p, struct waiter *w);
void policy_remove(struct policy *p, struct waiter *w); /* one that waits */
void policy_forget(struct policy *p, struct waiter *w); /* neither waits nor runs any more */
struct waiter *policy_any(const struct policy *p);      /* one that waits, or NULL */
static inline uint32_t policy_waiting(const struct policy *p) { return p->fair.n_waiting; }
/* It runs no more, or its step failed: its adapter may be evicted. */
void policy_leaves(struct policy *p, struct waiter *w);
/* One that ran and was preempted: none joins before it, but for those like it that outrank it. */
void policy_return(struct policy *p, struct waiter *w);
/* Of two that run: does `a` keep its blocks, and is `b` preempted? By priority, then by arrival. */
bool policy_outranks(const struct waiter *a, const struct waiter *b);

/* The next step: who joins it, in at most `cap` rows of `out` (one that was cut for want of room is
 * the last, but where pictures stay whole), and what the `started` ones compute. */
uint32_t policy_join(struct policy *p, const struct load *l, int64_t now_ns, struct joiner *out,
                     uint32_t cap);
#endif
