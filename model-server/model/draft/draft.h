/* draft.h - draft heads: small parts of a checkpoint that say which tokens are likely to follow,
 * from the hidden states that the model has computed anyway.
 *
 * Row p of a head gets the hidden state of token p and the token behind it, p + 1, and yields
 * logits of token p + 2. So the first draft needs the row of the token before the last one, and
 * each further one a row of its own (`depth` 1, 2 ...), with the draft before it and what the head
 * made of its last row. Heads with keys keep them in layers of the model's own cache, behind those
 * of the model: a row of every token has to pass through them, in order. What they hold decides how
 * often drafts are right, never what is answered.
 *
 * One file is one kind: it finds its tensors, loads them, runs a pass. Kinds call backend ops and
 * the decoder's steps (decoder_impl.h). One thread. */
#ifndef MODEL_SERVER_MODEL_DRAFT_DRAFT_H
#define MODEL_SERVER_MODEL_DRAFT_DRAFT_H
#include "model-server/backend/backend.h"
#include "model-server/model/arch.h"
#include "model-server/model/checkpoint.h"

struct decoder;
struct loader;

/* What a kind finds out before anything is loaded. */
struct draft_plan {
    uint32_t layers; /* of the cache that it keeps keys in; like the model's last one that attends,
                        or: */
    bool own;        /* like `layer`; its passes have rotations of their own, rope_dim wide */
    struct layer_spec layer;
    uint32_t rope_dim;
    uint32_t width; /* numbers of a row that it gets of the model (depth 0) */
    uint32_t most;  /* drafts that it can make at a time; 0: as many as are wanted */
    bool keeps;     /* keys: all tokens have to pass */
    bool chains; /* deeper rows are what it made of the one before; else the same row at each depth
                  */
};

/* One pass, between step_begin() and step_end(). The step's ids are the tokens behind its rows. */
struct draft_pass {
    uint32_t tokens, n_out, depth;
    const float
        *hidden; /* [tokens, width] on the device; depth > 0 with `chains`: [tokens, hidden] */
};

struct draft_ops {
    const char *name; /* for /info and logs: "mtp", "medusa", "eagle3" */
    /* Are its tensors there? 1: yes, and `p` is filled; 0: no; -1: they are no such head. */
    int (*find)(const struct decoder *d, const struct arch *a, const struct checkpoint *c,
                struct draft_plan *p, struct err *e);
    void *(*load)(struct loader *l); /* NULL after a fault, which the loader keeps */
    void (*free)(struct decoder *d, void *self);
    /* Enqueues; with n_out, scratch.out are the rows for the head (normalised) and *next
     * [n_out, hidden] those for the next depth; *head: the matrix that makes logits. */
    int (*forward)(struct decoder *d, const void *self, const struct draft_pass *p,
                   const float **next, struct weight **head, struct err *e);
    /* Rows (depth 0) that are no final hidden states: enqueues what `layer` adds to scratch.hidden
     * [tokens, width]. scratch.x is what enters that layer, or leaves the last one; scratch.r may
     * be used. NULL: rows are what stands behind the model's last norm. */
    void (*tap)(struct decoder *d, const void *self, uint32_t layer, uint32_t tokens);
};
extern const struct draft_ops draft_mtp, draft_medusa, draft_eagle, draft_eagle3;

struct draft {                   /* of a decoder */
    const struct draft_ops *ops; /* NULL: none */
    struct draft_plan plan;
    const struct checkpoint *from; /* valid while the decoder is loaded */
    void *self;
    /* With plan.own: one layer, on the memory and the cache of the model. load() sets it. */
    struct decoder *own;
    /* Its logits are about these tokens [own->spec.vocab]; the others get -infinity. NULL: it has
     * the model's vocabulary. */
    const uint32_t *ids;
};

/* Looks for a head of any kind in `c`, and makes room for its layers in d->spec. Before
 * decoder_load(). `wanted`: it is a fault where there is none. */
int draft_find(struct decoder *d, const struct arch *a, const struct checkpoint *c, bool wanted,
               struct err *e);

/* Rows of many sequences. `b` as of any step, with the tokens *behind* the rows as its ids. */
struct draft_step {
    struct ragged b;
    uint32_t depth;
    const float *const *rows; /* [b.n_tokens] in host memory */
    float *logits;            /* [b.n_out][vocabulary] */
    float *next;              /* [b.n_out][hidden] rows of the next depth */
};
/* As decoder_forward(). */
int decoder_draft(struct decoder *d, const struct draft_step *x, struct err *e);
#endif
