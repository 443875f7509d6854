/* step.h - one forward pass over many sequences, and its results.
 *
 * Prefill chunks and decodes share one pass, flattened to one list of tokens. Sequences change
 * only after the model has answered, so a failed step changes nothing and may be repeated.
 * Buffers grow to the largest step and are then reused. One thread. */
#ifndef MODEL_SERVER_ENGINE_STEP_H
#define MODEL_SERVER_ENGINE_STEP_H
#include "common/buf.h"
#include "model-server/engine/step/draws.h"
#include "model-server/model/model.h"

/* A token of a sequence, or its failure. A sequence with accepted drafts has several, in order.
 * Valid until the next step; text and top point into the stepper. */
struct gen {
    /* seq->error not empty: it failed by itself, and the other fields are invalid */
    struct seq *seq;
    struct sampled token;
    float *row; /* its logits; modified by sampling. NULL: the device has sampled */
    /* on a device that samples: place of the result, and its set of results */
    struct draw_place at;
    int set;
    const char *why;      /* why the device could not sample; or NULL */
    uint32_t nth, drafts; /* tokens of the same step before it, and drafts that may follow */
    uint32_t end;         /* tokens of the sequence including this one; 0: not reached */
    bool special;
    bool first;              /* the first generated token: prompt log-probabilities are complete */
    size_t text, text_len;   /* into stepper.text */
    enum stop_reason reason; /* STOP_NOT: more will come */
    size_t whole, whole_len; /* with a reason: the generated text without special tokens */
};

struct stepper {
    struct model *model;
    const struct backend_ops *ops; /* its host threads sample */
    struct device *dev;
    const struct tokenizer *tok;
    uint32_t vocab, block_size;
    bool by_length;      /* model_info's */
    uint32_t window;     /* window of layers with a separate cache; 0: there are none */
    struct heads *heads; /* gets hidden rows of steps; NULL: no draft head */
    bool drafts; /* sequences may have drafts: the next step waits for the tokens of this one */

    struct gen *gen; /* results of the last step, in the order of its sequences */
    uint32_t n_gen;
    bool chosen; /* the last run has sampled tokens, even if it failed then */
    bool apart;  /* a request failed for lack of memory, perhaps on this rank alone */
    struct buf text;
    int64_t forward_ns, decode_ns;
    int64_t early_ns; /* the part of forward_ns before the call, by run-ahead */

    /* Working memory. */
    uint32_t *ids, *pos, *slots, *out_rows, *window_slots;
    struct span *spans;
    /* With `heads`, hidden rows: of the running step, of the run-ahead; and where the current
     * pass stores its own. */
    float *hidden, *hidden_ahead, *capture;
    uint32_t cap_hidden_ahead;
    /* [cap_rows][vocab]: first the ahead_rows rows of the run-ahead with number ahead_no, then
     * those of the running step. Each sequence has rows in one of both. */
    float *logits;
    uint32_t ahead_no, ahead_rows, ahead_left; /* ahead_left: sequences that wait there */
    int64_t ahead_ns;
    /* A device that samples (`draws`) has two sets of results: that of the run-ahead, and the
     * other one. Only then is a run-ahead enqueued. */
    bool draws, enqueues; /* enqueues: model_info's */
    int ahead_set;
    int64_t enqueued_ns, ready_ns; /* of the last enqueue; when the last results were ready */
    struct draws rows;
    uint32_t *drawn;     /* struct ragged's */
    const float **given; /* the same; NULL until a sequence with images arrives */
    uint32_t (*axes)[3];
    struct mutual *mutual, *sees;
    bool *sight;           /* the same; NULL unless model_info's `sight` */
    uint32_t cap_pictures; /* tokens that they hold */
    uint32_t copy_from[SIBLINGS_MOST], copy_to[SIBLINGS_MOST], n_copies; /* blocks, of siblings */
    struct filter_mem *filter;                                           /* [threads] */
    uint32_t *mask;                                                      /* [threads][mask_words] */
    size_t mask_words;
    int threads, ranks;
    uint32_t *top_id;
    float *top_logprob;
    uint32_t cap_tokens, cap_spans, cap_gen, cap_rows, cap_top;
    struct buf piece;
};

/* After an error, stepper_free() frees what was allocated. */
int stepper_init(struct stepper *st, struct model *m, const struct backend_ops *ops,
                 struct device *dev, const struct tokenizer *tok, uint32_t block_size,
                 struct err *e);
void stepper_free(struct stepper *st);
/* Allocates memory for a step of that size. */
int stepper_reserve(struct stepper *st, uint32_t tokens, uint32_t rows, struct err *e);
int stepper_reserve_ahead(struct stepper *st, uint32_t rows, struct err *e);
/* The logits of the run-ahead, or of the running step. */
float *stepper_rows(const struct stepper *st, bool ahead);

/* Runs a step. Finished sequences are skipped; failed ones only get their gen. After an error,
 * which is the model's, no sequence has changed. A device that samples gets the following step
 * before this one's tokens are awaited, if possible: docs/decisions/run-ahead.md. */
int stepper_run(struct stepper *st, struct seq **v, uint32_t n, struct err *e);

/* Runs the forward pass of the next step of `v` now and keeps its logits. (On a device that
 * samples it is enqueued with the sampling; nothing is done if stepper_run() has done so.) The
 * next stepper_run() that contains one of these sequences, in any batch, only samples. No
 * sequence changes; the row of a sequence that never returns is wasted. All live sequences of `v`
 * must be decoding. Discards an earlier run-ahead. */
int stepper_ahead(struct stepper *st, struct seq **v, uint32_t n, struct err *e);

/* Writes the state after s->cached tokens to another cell: a copy, or computed from the existing
 * state (seq_lag()). */
int stepper_state(struct stepper *st, struct seq *s, uint32_t cell, struct err *e);

/* True if the next step of any of them is already run ahead, so that its drafts are fixed. */
bool stepper_is_ahead(const struct stepper *st, struct seq *const *v, uint32_t n);

/* Sets the number of prompt tokens that each sequence in prefill may process in the next step.
 * `budget` minus one for each other sequence goes to the oldest first. Each gets at least one
 * token, so that all make progress. */
void step_plan_chunks(struct seq **v, uint32_t n, uint32_t budget);
#endif
