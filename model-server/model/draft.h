/* draft.h - draft heads: small parts of a checkpoint that predict likely next tokens from the
 * hidden states that the model computes anyway.
 *
 * Row p of a head gets the hidden state of token p and the embedding of token p + 1, and yields
 * logits of token p + 2. So the first draft needs the row of the token before the last one. Each
 * further draft needs another row (`depth` 1, 2 ...), with the draft before it and the head's
 * result for its last row. Heads with keys store them in layers of the model's own cache, after
 * those of the model: a row of every token has to pass through them, in order. Their contents
 * determine how often drafts are right, never the answer.
 *
 * One file is one kind: it finds its tensors, loads them, and runs a pass. Kinds call backend ops
 * and the decoder's steps (decoder_impl.h). One thread. */
#ifndef MODEL_SERVER_MODEL_DRAFT_DRAFT_H
#define MODEL_SERVER_MODEL_DRAFT_DRAFT_H
#include "model-server/backend/backend.h"
#include "model-server/model/arch.h"
#include "model-server/model/checkpoint/checkpoint.h"

struct decoder;
struct loader;

/* Properties of a kind that are known before anything is loaded. */
struct draft_plan {
    /* layers of the cache for its keys; like the model's last attention layer, or: */
    uint32_t layers;
    bool own; /* like `layer`; its passes have rotations of their own, rope_dim wide */
    struct layer_spec layer;
    uint32_t rope_dim;
    uint32_t width; /* width of a row from the model (depth 0) */
    uint32_t most;  /* most drafts at a time; 0: any number */
    bool keeps;     /* it has keys: all tokens have to pass */
    bool chains; /* deeper rows are its result for the previous one; else the same row at each depth
                  */
};

/* One pass, between step_begin() and step_end(). The step's ids are the tokens after its rows. */
struct draft_pass {
    uint32_t tokens, n_out, depth;
    /* [tokens, width] on the device; depth > 0 with `chains`: [tokens, hidden] */
    const float *hidden;
};

struct draft_ops {
    const char *name; /* for /info and logs: "mtp", "medusa", "eagle3" */
    /* Looks for its tensors. 1: found, and `p` is filled; 0: not found; -1: they are invalid. */
    int (*find)(const struct decoder *d, const struct arch *a, const struct checkpoint *c,
                struct draft_plan *p, struct err *e);
    void *(*load)(struct loader *l); /* NULL after an error, which the loader records */
    void (*free)(struct decoder *d, void *self);
    /* Enqueues. With n_out, scratch.out are the rows for the head (normalised) and *next [n_out,
     * hidden] those for the next depth; *head: the matrix of the logits. */
    int (*forward)(struct decoder *d, const void *self, const struct draft_pass *p,
                   const float **next, struct weight **head, struct err *e);
    /* For rows (depth 0) that are not the final hidden states: enqueues what `layer` adds to
     * scratch.hidden [tokens, width]. scratch.x is the input of that layer, or the output of the
     * last one; scratch.r may be used. NULL: rows are the states after the model's last norm. */
    void (*tap)(struct decoder *d, const void *self, uint32_t layer, uint32_t tokens);
};
extern const struct draft_ops draft_mtp, draft_medusa, draft_eagle, draft_eagle3;

struct draft {                   /* of a decoder */
    const struct draft_ops *ops; /* NULL: none */
    struct draft_plan plan;
    const struct checkpoint *from; /* valid while the decoder is loaded */
    void *self;
    /* With plan.own: one layer that uses the model's memory and cache. load() sets it. */
    struct decoder *own;
    /* Tokens of its logits [own->spec.vocab]; all others get -infinity. NULL: it has the model's
     * vocabulary. */
    const uint32_t *ids;
};

/* Looks for a head of any kind in `c`, and adds its layers to d->spec. Before decoder_load().
 * `wanted`: a missing head is an error. */
int draft_find(struct decoder *d, const struct arch *a, const struct checkpoint *c, bool wanted,
               struct err *e);

/* Rows of many sequences. `b` as in any step, with the tokens *after* the rows as its ids. */
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
