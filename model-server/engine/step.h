/* step.h - one forward pass over many sequences, and what comes of it.
 *
 * Prefill chunks and decodes ride in the same pass, flattened to one list of tokens. Nothing of a
 * sequence changes before the model has answered, so a failed step leaves everything as it was and
 * may be repeated. Buffers grow to the largest step and are then reused. One thread. */
#ifndef MODEL_SERVER_ENGINE_STEP_H
#define MODEL_SERVER_ENGINE_STEP_H
#include "common/buf.h"
#include "model-server/engine/draws.h"
#include "model-server/model/model.h"

/* One sequence got a token, or failed. A sequence whose drafts were accepted has several, one
 * behind the other. Valid until the next step; text and top point into the stepper. */
struct gen {
    struct seq *seq; /* seq->error not empty: failed alone, the rest means nothing */
    struct sampled token;
    float *row;           /* its logits; used up by sampling. NULL: the device has chosen */
    struct draw_place at; /* with a device that chooses: where, and in which set of its results */
    int set;
    const char *why;      /* the device could not choose */
    uint32_t nth, drafts; /* how many tokens of the same step come before, and may come behind */
    uint32_t end;         /* tokens of the sequence up to this one; 0: it was not reached */
    bool special;
    bool first;              /* the first generated token: prompt log-probabilities are complete */
    size_t text, text_len;   /* into stepper.text */
    enum stop_reason reason; /* STOP_NOT: more will come */
    size_t whole, whole_len; /* with a reason: the generated text without special tokens */
};

struct stepper {
    struct model *model;
    const struct backend_ops *ops; /* whose host threads sample */
    struct device *dev;
    const struct tokenizer *tok;
    uint32_t vocab, block_size;
    bool by_length;      /* model_info's */
    uint32_t window;     /* tokens that layers see whose cache is apart; 0: none is */
    struct heads *heads; /* gets what steps leave for it; NULL: there is no draft head */
    bool drafts; /* sequences may have some: the next step waits for the tokens of this one */

    struct gen *gen; /* results of the last step, in the order of its sequences */
    uint32_t n_gen;
    struct buf text;
    int64_t forward_ns, decode_ns;
    int64_t early_ns; /* the part of forward_ns that was spent before the call: the run-ahead's */

    /* Working memory. */
    uint32_t *ids, *pos, *slots, *out_rows, *window_slots;
    struct span *spans;
    /* With `heads`, rows of tokens for it: of the running step, of the run-ahead; where the pass at
     * hand puts its own. */
    float *hidden, *hidden_ahead, *capture;
    uint32_t cap_hidden_ahead;
    float *logits, *ahead; /* of the running step; of the run-ahead number ahead_no */
    uint32_t ahead_no, cap_ahead;
    int64_t ahead_ns;
    /* A device that chooses tokens (`draws`) has two sets of results: that of the run-ahead, and
     * the other one. A run-ahead is only enqueued then. */
    bool draws, enqueues; /* enqueues: model_info's */
    int ahead_set;
    int64_t enqueued_ns, ready_ns; /* when it was; when the last results were there */
    struct draws rows;
    uint32_t *drawn;     /* struct ragged's */
    const float **given; /* and these: NULL until a sequence with pictures comes */
    uint32_t (*axes)[3];
    struct mutual *mutual, *sees;
    uint32_t cap_pictures;                                               /* tokens that they hold */
    uint32_t copy_from[SIBLINGS_MOST], copy_to[SIBLINGS_MOST], n_copies; /* blocks, of siblings */
    struct filter_mem *filter;                                           /* [threads] */
    uint32_t *mask;                                                      /* [threads][mask_words] */
    size_t mask_words;
    int threads;
    uint32_t *top_id;
    float *top_logprob;
    uint32_t cap_tokens, cap_spans, cap_gen, cap_rows, cap_top;
    struct buf piece;
};

int stepper_init(struct stepper *st, struct model *m, const struct backend_ops *ops,
                 struct device *dev, const struct tokenizer *tok, uint32_t block_size,
                 struct err *e);
void stepper_free(struct stepper *st);
/* Room for a step of that size ahead of time. */
int stepper_reserve(struct stepper *st, uint32_t tokens, uint32_t rows, struct err *e);
int stepper_reserve_ahead(struct stepper *st, uint32_t rows, struct err *e);
uint64_t stepper_row_bytes(const struct stepper *st);

/* Sequences that are done are passed over; failed ones only get their gen. An error is the model's:
 * no sequence has changed. On a device that chooses tokens, the step after this one is enqueued
 * before this one's tokens are waited for, where that can be: docs/decisions/run-ahead.md. */
int stepper_run(struct stepper *st, struct seq **v, uint32_t n, struct err *e);

/* Run the forward of the next step of `v` now (on a device that chooses tokens: enqueue it, with
 * the choice; nothing is done if stepper_run() did so already), and keep its logits: the next
 * stepper_run() that meets one of these sequences, in whatever company, only samples. No sequence
 * changes; a sequence that never comes back costs its row. All of `v` that live must be decoding.
 * An earlier run-ahead is forgotten. */
int stepper_ahead(struct stepper *st, struct seq **v, uint32_t n, struct err *e);

/* The state after s->cached tokens, into another cell: a copy, or computed from the one that the
 * sequence has (seq_lag()). */
int stepper_state(struct stepper *st, struct seq *s, uint32_t cell, struct err *e);

/* Is the next step of any of them run ahead already, so that it is settled what it verifies? */
bool stepper_is_ahead(const struct stepper *st, struct seq *const *v, uint32_t n);

/* How many prompt tokens each sequence still in prefill may process in the next step: `budget` less
 * one for each other sequence, to the oldest first; at least one each, so that none stands still.
 */
void step_plan_chunks(struct seq **v, uint32_t n, uint32_t budget);
#endif
