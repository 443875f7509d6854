/* engine.h - the shard without its wire: batches by id, steps over them, the KV pool.
 *
 * All calls come from one thread, one after the other. With several ranks every rank gets the same
 * calls in the same order and comes to the same tokens; rank 0 is the one that is asked for the
 * text.
 *
 * After an error nothing has changed: cached batches are as before the call, a new batch is gone.
 * The exception is engine_broken(): the ranks have lost each other and this process must end. */
#ifndef MODEL_SERVER_ENGINE_ENGINE_H
#define MODEL_SERVER_ENGINE_ENGINE_H
#include "model-server/engine/batch.h"
#include "model-server/engine/edit.h"
#include "model-server/engine/step.h"

struct engine_options {
    struct model *model;
    const struct tokenizer *tok;
    const struct backend_ops *ops; /* asked for the memory that is left */
    struct device *dev;
    struct comm *comm;
    uint32_t block_size;
    enum kv_dtype kv_dtype;
    struct pictures *pictures;        /* NULL: the model reads text only. Outlives the engine */
    double memory_fraction, kv_limit; /* see kv_pool.h */
    double adapter_fraction;          /* of what is then free, for adapters on the device */
    uint32_t max_total_tokens;        /* 0: what the model and the memory allow */
    uint64_t swap_bytes;              /* of the host's memory, on this rank; 0: no swap region */
    uint64_t offload_bytes;           /* of the host's memory, which others than the engine take */
    uint32_t speculate; /* tokens that a step may verify for each sequence; 0: no speculation */
    double row_cost;    /* struct step_worth's; 0: measured at warm-up */
};

struct engine;
struct engine *engine_new(const struct engine_options *o, struct err *e); /* `o` is copied */
void engine_free(struct engine *g);
struct seq_limits engine_limits(struct engine *g); /* for admission; next_block is 0 */
bool engine_broken(const struct engine *g);
struct engine_stats { /* what is kept between calls */
    uint32_t batches, sequences, blocks_total;
    uint64_t blocks; /* over all sequences; one that several share counts for each */
    uint64_t tokens; /* known ones, prompts included */
};
struct engine_stats engine_stats(const struct engine *g);
/* The request is in a cached batch: its KV blocks are its own. */
bool engine_holds(const struct engine *g, uint64_t request);

struct warmup {
    const struct seq_spec *specs; /* the largest batch the router will ever send */
    uint32_t n;
    uint32_t max_prefill_tokens;
    uint32_t max_chunk_tokens;                   /* of these, for prompts that go on; 0: all */
    uint32_t max_input_tokens, max_total_tokens; /* 0: to be found out; on return: the values */
    uint32_t supported_tokens;                   /* on return: what the KV cache holds */
    uint32_t swap_slots;                         /* on return: blocks in the swap region */
    int64_t swap_block_ns;                       /* on return: to move one there */
    int64_t kv_ns;                               /* on return: that the cache took */
    uint32_t adapter_pages;                      /* on return: that adapters on the device share */
    uint32_t state_cells; /* on return: cells of recurrent state that the router may hand out */
    bool windows;         /* the caller hands out blocks of a cache of windows, if there is one */
    uint32_t window_blocks, window_tokens; /* on return: of it, and what its layers see; or 0 */
};
/* Reserve scratch for the largest step, give the rest of the memory to the KV cache, run once. */
int engine_warmup(struct engine *g, struct warmup *w, struct err *e);

uint32_t engine_default_prefill(void); /* tokens of the largest prefill, where it is not given */
/* What warm-up would come to, of a model that was only measured (model_options.measure). */
struct engine_plan {
    uint64_t total, free;                             /* of the device, now */
    uint64_t weights, workspaces, adapters, swap, kv; /* bytes on this rank */
    uint64_t pictures; /* the tower's weights and workspaces; 0: the model reads text only */
    uint64_t block_bytes, cell_bytes, state; /* state: all n_cells of them */
    uint64_t window_block_bytes;             /* of n_windows; `kv` has all of it */
    uint32_t n_blocks, n_cells, n_windows;
    const char *kv_why; /* what decided on the cache */
    uint32_t max_input_tokens, max_total_tokens, max_batch_total_tokens, max_batch_prefill_tokens;
    uint32_t largest_total_tokens; /* that would fit, where the cache is too small; 0: none */
    char why[480];                 /* it does not fit, and what would; "": it fits */
};
/* Nothing is taken. Other ranks are assumed to take as much as this one. */
int engine_plan(const struct engine *g, const struct warmup *w, struct engine_plan *p,
                struct err *e);

struct answer {
    const struct stepper *out; /* out->gen[0 .. n_gen): valid until the next call */
    const struct batch *batch; /* NULL: every request has stopped */
    int64_t concat_ns;         /* negative: nothing was concatenated */
    int64_t encode_ns;         /* of out->forward_ns, for pictures */
    uint64_t encode_done;      /* see pictures_encode() */
};
/* Begin `specs` as batch `id`; with `cached`, behind that batch's sequences and under its id. `x`
 * (NULL: nothing) changes the cached batch first; once that is done it stays, whatever becomes of
 * the step. */
int engine_prefill(struct engine *g, uint64_t id, const struct seq_spec *specs, uint32_t n,
                   const uint64_t *cached, const struct edits *x, struct answer *a, struct err *e);
/* Before a Prefill whose requests go on from the KV of others: block target[i] becomes a copy of
 * source[i], in this order. */
int engine_copy(struct engine *g, const uint32_t *source, const uint32_t *target, uint32_t n,
                struct err *e);
/* The same in the cache of windows. */
int engine_copy_windows(struct engine *g, const uint32_t *source, const uint32_t *target,
                        uint32_t n, struct err *e);
/* One step over all of the listed batches, which become one under the first one's id; `x` as above.
 */
int engine_decode(struct engine *g, const uint64_t *ids, size_t n, const struct edits *x,
                  struct answer *a, struct err *e);
/* After each call, on every rank alike: begin the next step of what was just decoded, so that the
 * router's time between two Decodes is not lost. An error only matters if engine_broken(). */
int engine_ahead(struct engine *g, struct err *e);
int engine_filter(struct engine *g, uint64_t id, const uint64_t *requests, size_t n,
                  const struct batch **out, struct err *e);
/* The last answer is not needed any more: requests that ended in it give up their adapters. */
void engine_drop_answer(struct engine *g);
void engine_clear(struct engine *g, const uint64_t *id); /* NULL: all; an unknown id is fine */
#endif
