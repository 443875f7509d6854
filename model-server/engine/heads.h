/* heads.h - drafts of the model's own head (model/draft/draft.h).
 *
 * A step leaves behind a row of numbers for each of its tokens. Those of tokens that were accepted
 * are kept with the sequence until they pass through the head: when drafts are wanted, all of the
 * batch together, or when there are many. What the head then says is chosen from as the model's own
 * logits would be: by the request's parameters and the noise of the position (sample/noise.h).
 * Every rank comes to the same. One thread. */
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
    HEAD_LAG = 64,  /* rows of a sequence that wait to pass through it */
};

struct head_rows { /* of a sequence; zero-initialise */
    float *v;      /* rows of tokens [from, from + n), which wait */
    uint32_t from, n, cap;
    bool begun;
    /* Of a head with keys: those of tokens before this one are not right, and not looked at. A
     * multiple of the block size. */
    uint32_t since;
    /* In the rows of the last step: that of token fresh_at, and those behind it; or NULL. */
    const float *fresh;
    uint32_t fresh_at;
    /* Drafts that were made already, for positions from `at` on. */
    uint32_t at, n_made, made[HEAD_MOST];
    bool has_second;
    uint32_t second; /* the best one but for the first of them, in its place */
    uint32_t most;   /* in heads_propose(): drafts that are wanted */
};
void head_rows_free(struct head_rows *r);

struct heads {
    struct model *model;
    struct model_draft of; /* kind NULL: there is no head */
    uint32_t vocab, block_size;
    double pass_cost; /* in steps of one row */
    /* Whether it is worth using: see heads_enter(). `measured`: steps are timed; else it is always
     * on. */
    bool measured;
    struct gate gate;
    uint64_t passes, passes_before; /* for drafts, ever; up to the last step that was timed */
    int64_t ns;                     /* spent on the step at hand so far */
    struct filter_mem filter;
    float *second; /* [vocab] a row once more, for the second-best token; NULL: it is not wanted */
    /* Working memory. */
    uint32_t *ids, *pos, *slots, *out_rows, *mask;
    struct span *spans;
    const float **rows;
    struct seq **who;
    uint32_t *states; /* of grammars, behind what was drafted */
    float *logits, *next;
    uint32_t cap_tokens, cap_seqs;
};
/* Nothing is taken where the model has no head. */
int heads_init(struct heads *h, struct model *m, uint32_t block_size, struct err *e);
/* First drafts come with a second-best one from now on. */
int heads_want_second(struct heads *h, struct err *e);
void heads_free(struct heads *h);
static inline bool heads_any(const struct heads *h) { return h->of.kind != NULL; }

/* After warm-up: with `measured`, whether it is used is decided by what steps take from now on. */
void heads_start(struct heads *h, bool measured);
/* The next step is one of so many sequences: whether its rows are kept, and whether there are
 * drafts of the head, is as the gate says for batches of this size. */
void heads_enter(struct heads *h, uint32_t seqs);
static inline bool heads_keep(const struct heads *h) { return gate_mode(&h->gate) != GATE_OFF; }
static inline bool heads_draft(const struct heads *h) { return gate_mode(&h->gate) == GATE_ON; }
/* A decode step has brought so many tokens, after `ns` since the last call. All ranks call it after
 * the same steps, and agree on what it took. */
int heads_learn(struct heads *h, struct comm *c, uint32_t tokens, int64_t ns, struct err *e);

/* The fresh rows of tokens before `end` are good: they are kept, or pass through. */
int heads_take(struct heads *h, struct seq *s, uint32_t end, struct err *e);
/* Can `s` have drafts of the head? */
bool heads_ready(const struct heads *h, const struct seq *s);
/* Drafts behind the known tokens of those with head.most > 0, which are ready: written behind
 * their ids, `proposed` of them. `w` is the step as it is without these; its passes are added. As
 * many passes as are worth it (struct step_worth). */
int heads_propose(struct heads *h, struct seq **v, uint32_t n, struct step_worth *w, struct err *e);
#endif
