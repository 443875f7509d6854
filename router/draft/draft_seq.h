/* draft_seq.h - a request of the served model as the draft model sees it. Pure bookkeeping.
 *
 * `own` holds the tokens of the request, then drafts. The draft shard's sequence holds the first
 * n_there of them, as long as it is not `wrong`; their KV, but for the last one's, is in the draft
 * sequence's blocks. When the served model decides otherwise than was drafted, the drafts from
 * there on go, what the shard has becomes wrong, and the draft sequence joins the shard's batch
 * again behind the KV that still holds. */
#ifndef ROUTER_DRAFT_DRAFT_SEQ_H
#define ROUTER_DRAFT_DRAFT_SEQ_H
#include "router/draft/draft_wait.h"
#include "router/scheduler/seq.h"

/* In the draft shard's batch or not, or on the way with the call that is out. */
enum draft_seq_state { DRAFT_SEQ_OUT, DRAFT_SEQ_JOINING, DRAFT_SEQ_IN, DRAFT_SEQ_LEAVING };

struct draft_seq {
    struct draft_seq *next;
    struct seq *q;          /* the request; NULL: it is over, and this goes when it is out */
    struct seq *own;        /* its id is the request's */
    struct gen_request ask; /* own->req: what the draft shard is asked for */
    enum draft_seq_state state;
    bool wrong;       /* the shard's sequence is not `own`'s any more */
    bool ended;       /* the draft model has nothing to say behind own's last token */
    bool refused;     /* by the draft shard, for good */
    uint32_t n_known; /* tokens of q that were compared */
    uint32_t n_there; /* see above */
    uint32_t n_kv;    /* tokens of `own` whose KV is right */
    bool awaited;     /* a step waits for its drafts */
    struct draft_hits hits;
};

struct draft_seq *draft_seq_new(struct seq *q); /* NULL: out of memory */
void draft_seq_free(struct draft_seq *t);       /* its blocks were released */
/* q has more tokens than before. */
void draft_seq_follow(struct draft_seq *t);
/* The draft shard has chosen this token; `last`: and nothing will come behind it. */
void draft_seq_push(struct draft_seq *t, uint32_t id, bool last);
/* It goes (again) to the draft shard, with what q asked for as far as that decides tokens. */
void draft_seq_join(struct draft_seq *t);
/* The shard has forgotten all KV. */
void draft_seq_reset(struct draft_seq *t);

static inline uint32_t draft_seq_ahead(const struct draft_seq *t)
{
    return t->own->n_tokens - t->q->n_tokens;
}
/* Has the draft shard what it needs for the next token? */
static inline bool draft_seq_current(const struct draft_seq *t)
{
    return !t->wrong && t->n_there == t->own->n_tokens;
}
#endif
