/* start.h - what a model is, and what its shards can hold: Info, then Warmup.
 *
 * Blocks, as shards_connect(); called once, before the scheduler starts. */
#ifndef ROUTER_SHARDS_START_H
#define ROUTER_SHARDS_START_H
#include "common/sentence.h"
#include "router/shards/served_adapters.h"
#include "router/shards/shards.h"

enum { SHARD_STATE_CELLS = 2 }; /* of recurrent state a request, where a model has any */

struct shard_model {
    int version;           /* of generate.vN */
    bool requires_padding; /* no block numbers: the peer lays its KV out itself, as all of v2 do */
    bool chunking, prefix_caching, takes_input_ids, copies_kv, takes_edits, takes_chunks,
        takes_bias, takes_reasoning, takes_grammars, takes_windows, takes_images;
    uint32_t speculate, block_size, vocab_size, max_positions; /* max_positions 0: unbounded */
    uint64_t sampling_fields;                                  /* of param_bit() */
    uint64_t vocab_hash;                                       /* 0: not said */
    char dtype[32], device[32], quantize[32], activations[16], matrices[256];
    enum model_task task;              /* what it is served for; but for TASK_GENERATE: */
    uint32_t embed_width, hidden_size; /* numbers of a text, of a token */
    bool pairs_as_text;                /* a reranker that is asked in words */
    bool wants_labels;                 /* the caller does, and frees them: */
    char **labels;                     /* [n_labels] of a classifier */
    uint32_t n_labels;
    /* asked for (0: not), then settled by warm-up */
    uint32_t max_input_tokens, max_total_tokens, max_batch_prefill_tokens, max_batch_total_tokens;
    uint32_t max_batch_size;                       /* 0: no limit; only read */
    bool offloads;                                 /* KV blocks may go below the cache */
    bool transfers;                                /* and to other services' shards */
    uint32_t swap_slots;                           /* blocks that every shard's swap region holds */
    uint64_t swap_block_ns;                        /* to move one there */
    uint32_t state_cells_per_request, state_cells; /* of recurrent state; 0: the model has none */
    bool wants_windows; /* the caller hands out blocks of a cache of windows, if there is one: */
    uint32_t window_blocks, window_tokens; /* of it, and what its layers see; 0: there is none */
    uint32_t adapter_pages;                /* that adapters in use share */
    uint32_t runtime_adapters;             /* so many may be loaded while the shards serve */
    struct served_adapters *adapters; /* released by the caller, also after an error; or NULL */
};

void shard_labels_free(struct shard_model *m);
/* `m` comes with what the operator asked for and leaves with what is. */
int shards_warmup(struct shards *s, struct shard_model *m, struct err *e);
#endif
