/* heads.h - drafts by a head of the checkpoint (model/draft/draft.h).
 *
 * A step leaves a hidden row for each of its tokens. Rows of accepted tokens are kept with the
 * sequence until they pass through the head: for the whole batch together when drafts are made, or
 * when many are pending. Drafts are sampled from the head's logits as tokens are from the model's:
 * with the request's parameters and the noise of the position (sample/noise.h). All ranks compute
 * the same drafts. One thread. */
#ifndef MODEL_SERVER_ENGINE_HEADS_H
#define MODEL_SERVER_ENGINE_HEADS_H
#include "model-server/comm/comm.h"
#include "model-server/model/model.h"
#include "model-server/sample/filter.h"
#include "model-server/spec/acceptance.h"
#include "model-server/spec/gate.h"

struct seq;

enum {
    HEAD_MOST = 16, /* drafts of a head that one step verifies */
    HEAD_LAG = 64,  /* pending rows of a sequence */
};

struct head_rows { /* of a sequence; zero-initialise */
    float *v;      /* pending rows, of tokens [from, from + n) */
    uint32_t from, n, cap;
    bool begun;
    /* For a head with keys: keys of earlier tokens are invalid and masked. A multiple of the block
     * size. */
    uint32_t since;
    /* Rows of the last step, from token fresh_at on; or NULL. */
    const float *fresh;
    uint32_t fresh_at;
    /* Drafts made so far, for positions from `at` on. */
    uint32_t at, n_made, made[HEAD_MOST];
    bool has_second;
    uint32_t second; /* second-best token in place of the first draft */
    uint32_t most;   /* for heads_propose(): requested drafts */
};
void head_rows_free(struct head_rows *r);

struct heads {
    struct model *model;
    struct model_draft of; /* kind NULL: there is no head */
    uint32_t vocab, block_size;
    double pass_cost; /* in steps of one row */
    /* `measured`: the gate decides by step times; otherwise the head is always on. */
    bool measured;
    struct gate gate;
    uint64_t passes, passes_before; /* total passes; those before the last timed step */
    int64_t ns;                     /* time spent on the current step */
    struct filter_mem filter;
    float *second; /* [vocab] copy of a row, for the second-best token; NULL: not used */
    /* Working memory. */
    uint32_t *ids, *pos, *slots, *out_rows, *mask;
    struct span *spans;
    const float **rows;
    struct seq **who;
    uint32_t *states; /* grammar states after the drafts */
    float *logits, *next;
    uint32_t cap_tokens, cap_seqs;
};
/* Allocates memory, unless the model has no head. */
int heads_init(struct heads *h, struct model *m, uint32_t block_size, struct err *e);
/* Enables second-best first drafts (sibling.h). */
int heads_want_second(struct heads *h, struct err *e);
void heads_free(struct heads *h);
static inline bool heads_any(const struct heads *h) { return h->of.kind != NULL; }

/* Call it after warm-up. `measured`: the gate decides by step times from now on. */
void heads_start(struct heads *h, bool measured);
/* Sets the batch size of the next step, for which the gate then decides heads_keep() and
 * heads_draft(). */
void heads_enter(struct heads *h, uint32_t seqs);
static inline bool heads_keep(const struct heads *h) { return gate_mode(&h->gate) != GATE_OFF; }
static inline bool heads_draft(const struct heads *h) { return gate_mode(&h->gate) == GATE_ON; }
/* Records a decode step: its tokens and the time since the last call. All ranks call it after the
 * same steps and agree on the time. */
int heads_learn(struct heads *h, struct comm *c, uint32_t tokens, int64_t ns, struct err *e);

/* Accepts the fresh rows of tokens before `end`: keeps them, or passes them through the head. */
int heads_take(struct heads *h, struct seq *s, uint32_t end, struct err *e);
/* True if the head can draft for `s`. */
bool heads_ready(const struct heads *h, const struct seq *s);
/* Drafts tokens for the sequences with head.most > 0, which must be ready. The drafts are appended
 * to their ids; `proposed` is their number. `w`: the step without these drafts; the cost of passes
 * is added to it. Makes as many passes as pay (struct step_worth). */
int heads_propose(struct heads *h, struct seq **v, uint32_t n, struct step_worth *w, struct err *e);
#endif
