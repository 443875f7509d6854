/* engine.h - the shard without its protocol: batches by id, their steps, and the KV pool.
 *
 * All calls come from one thread, one after the other. With several ranks every rank gets the
 * same calls in the same order and samples the same tokens. Rank 0 returns the text.
 *
 * After an error nothing has changed: cached batches are as before the call, and a new batch is
 * freed. The exception is engine_broken(): the ranks are out of step, or the device is lost
 * (backend_ops.lost), and this process must end. */
#ifndef MODEL_SERVER_ENGINE_ENGINE_H
#define MODEL_SERVER_ENGINE_ENGINE_H
#include "model-server/engine/batch.h"
#include "model-server/engine/edit.h"
#include "model-server/engine/grammars.h"
#include "model-server/engine/step/step.h"

struct engine_options {
    struct model *model;
    const struct tokenizer *tok;
    const struct backend_ops *ops; /* queried for the available memory */
    struct device *dev;
    struct comm *comm;
    uint32_t block_size;
    enum kv_dtype kv_dtype;
    /* NULL: the model does not support images. Must outlive the engine */
    struct pictures *pictures;
    double memory_fraction, kv_limit; /* see kv_pool.h */
    double adapter_fraction;          /* share of the then free memory for adapters on the device */
    uint32_t max_total_tokens;        /* 0: limited by the model and the memory */
    uint64_t swap_bytes;       /* host memory for the swap region on this rank; 0: no swap region */
    uint64_t offload_bytes;    /* host memory that other components use for offloading */
    uint64_t constraint_bytes; /* most host memory for all constraints of answers; 0: no limit */
    uint32_t speculate; /* most tokens that a step verifies per sequence; 0: no speculation */
    double row_cost;    /* see struct step_worth; 0: measured at warm-up */
};

struct engine;
struct engine *engine_new(const struct engine_options *o, struct err *e); /* `o` is copied */
void engine_free(struct engine *g);
struct seq_limits engine_limits(struct engine *g); /* limits for admission; next_block is 0 */
bool engine_broken(const struct engine *g);
struct grammars_stats engine_grammars(const struct engine *g);
struct engine_stats { /* state between calls */
    uint32_t batches, sequences, blocks_total;
    uint64_t blocks; /* summed over sequences; a shared block counts once per sequence */
    uint64_t tokens; /* known tokens, including prompts */
};
struct engine_stats engine_stats(const struct engine *g);
/* True if the request is in a cached batch: its KV blocks are in use. */
bool engine_holds(const struct engine *g, uint64_t request);

struct warmup {
    const struct seq_spec *specs; /* the largest batch that the router will send */
    uint32_t n;
    uint32_t max_prefill_tokens;
    uint32_t max_chunk_tokens; /* of these, for prompts with more chunks to come; 0: all */
    uint32_t max_input_tokens, max_total_tokens; /* 0: to be determined; on return: the values */
    uint32_t supported_tokens;                   /* on return: capacity of the KV cache */
    uint32_t swap_slots;                         /* on return: blocks in the swap region */
    int64_t swap_block_ns;  /* on return: time to move one block to the swap region */
    int64_t kv_ns;          /* on return: time to allocate the cache */
    uint32_t adapter_pages; /* on return: pages for adapters on the device */
    uint32_t state_cells;   /* on return: cells of recurrent state that the router may assign */
    bool windows; /* the caller assigns blocks of a sliding-window cache, if there is one */
    uint32_t window_blocks, window_tokens; /* on return: its blocks and its window; or 0 */
};
/* Reserves scratch memory for the largest step, allocates the KV cache from the rest, and runs
 * one trial step. */
int engine_warmup(struct engine *g, struct warmup *w, struct err *e);

uint32_t engine_default_prefill(void); /* the default size of the largest prefill, in tokens */
/* The result that warm-up would have, for a model loaded with model_options.measure. */
struct engine_plan {
    uint64_t total, free;                             /* of the device, now */
    uint64_t weights, workspaces, adapters, swap, kv; /* bytes on this rank */
    uint64_t pictures; /* weights and workspaces of the vision tower; 0: no images */
    uint64_t block_bytes, cell_bytes, state; /* state: total of n_cells cells */
    uint64_t window_block_bytes;             /* of each of n_windows blocks; included in `kv` */
    uint32_t n_blocks, n_cells, n_windows;
    const char *kv_why; /* what limited the size of the cache */
    uint32_t max_input_tokens, max_total_tokens, max_batch_total_tokens, max_batch_prefill_tokens;
    uint32_t largest_total_tokens; /* most tokens of a request that fits, if the cache is too small;
                                      0: none */
    char why[480];                 /* why it does not fit, and what would; "": it fits */
};
/* Allocates nothing. Assumes that other ranks need as much memory as this one. */
int engine_plan(const struct engine *g, const struct warmup *w, struct engine_plan *p,
                struct err *e);

struct answer {
    const struct stepper *out; /* out->gen[0 .. n_gen): valid until the next call */
    const struct batch *batch; /* NULL: every request has stopped */
    int64_t concat_ns;         /* negative: no batches were concatenated */
    int64_t encode_ns;         /* part of out->forward_ns spent on images */
    uint64_t encode_done;      /* see pictures_encode() */
};
/* Starts `specs` as batch `id`; with `cached`, appends them to that batch under its id. `x` (or
 * NULL) changes the cached batch first. Once applied, these changes stay, even if the step
 * fails. */
int engine_prefill(struct engine *g, uint64_t id, const struct seq_spec *specs, uint32_t n,
                   const uint64_t *cached, const struct edits *x, struct answer *a, struct err *e);
/* Call it before a Prefill whose requests continue from other requests' KV: copies block
 * source[i] to target[i], in this order. */
int engine_copy(struct engine *g, const uint32_t *source, const uint32_t *target, uint32_t n,
                struct err *e);
/* The same for the sliding-window cache. */
int engine_copy_windows(struct engine *g, const uint32_t *source, const uint32_t *target,
                        uint32_t n, struct err *e);
/* Runs one step of all listed batches, which are merged into one with the first one's id; `x` as
 * above. */
int engine_decode(struct engine *g, const uint64_t *ids, size_t n, const struct edits *x,
                  struct answer *a, struct err *e);
/* Call it after each call, on every rank: starts the next step of what was just decoded, to use
 * the router's time between two Decodes. Errors matter only if engine_broken() is true. */
int engine_ahead(struct engine *g, struct err *e);
int engine_filter(struct engine *g, uint64_t id, const uint64_t *requests, size_t n,
                  const struct batch **out, struct err *e);
/* Frees the last answer: requests that ended in it release their adapters. */
void engine_drop_answer(struct engine *g);
void engine_clear(struct engine *g, const uint64_t *id); /* NULL: all; an unknown id is ignored */
#endif
