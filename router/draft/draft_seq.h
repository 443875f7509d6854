/* draft_seq.h - a request of the served model, as its draft model sees it. Pure accounting.
 *
 * `own` holds the tokens of the request, then draft tokens. The draft shard's sequence holds the
 * first n_there of them unless it is `wrong`. Their KV, except the last one's, is in the blocks of
 * `own`. If the served model generates another token than drafted, the drafts from there on are
 * dropped and the shard's sequence is wrong. It then rejoins the shard's batch after the KV that
 * is still valid. */
#ifndef ROUTER_DRAFT_DRAFT_SEQ_H
#define ROUTER_DRAFT_DRAFT_SEQ_H
#include "router/draft/draft_wait.h"
#include "router/scheduler/seq.h"

/* Outside or inside the draft shard's batch, or changed by the call in flight. */
enum draft_seq_state { DRAFT_SEQ_OUT, DRAFT_SEQ_JOINING, DRAFT_SEQ_IN, DRAFT_SEQ_LEAVING };

struct draft_seq {
    struct draft_seq *next;
    struct seq *q;          /* the request; NULL: it has ended, and this is freed once OUT */
    struct seq *own;        /* has the same id as the request */
    struct gen_request ask; /* own->req: the request to the draft shard */
    enum draft_seq_state state;
    bool wrong;       /* the shard's sequence differs from `own` */
    bool ended;       /* the draft model ends the text after own's last token */
    bool refused;     /* by the draft shard, permanently */
    uint32_t n_known; /* tokens of q that were compared */
    uint32_t n_there; /* see above */
    uint32_t n_kv;    /* tokens of `own` whose KV is valid */
    bool awaited;     /* a step waits for its drafts */
    struct draft_hits hits;
};

struct draft_seq *draft_seq_new(struct seq *q); /* NULL: out of memory */
void draft_seq_free(struct draft_seq *t);       /* its blocks must have been released */
/* Compares the new tokens of q, and drops drafts that differ. */
void draft_seq_follow(struct draft_seq *t);
/* Appends a token of the draft shard; `last`: it generates no more. */
void draft_seq_push(struct draft_seq *t, uint32_t id, bool last);
/* Prepares to (re)join the draft shard, with those of q's parameters that affect tokens. */
void draft_seq_join(struct draft_seq *t);
/* The shard has lost all KV. */
void draft_seq_reset(struct draft_seq *t);

/* Number of draft tokens. */
static inline uint32_t draft_seq_ahead(const struct draft_seq *t)
{
    return t->own->n_tokens - t->q->n_tokens;
}
/* Does the draft shard hold all tokens before the next one? */
static inline bool draft_seq_current(const struct draft_seq *t)
{
    return !t->wrong && t->n_there == t->own->n_tokens;
}
#endif
