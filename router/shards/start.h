/* start.h - queries what a model is (Info) and what its shards can hold (Warmup).
 *
 * Blocks, as shards_connect(). Called once per connection, before the shards are used. */
#ifndef ROUTER_SHARDS_START_H
#define ROUTER_SHARDS_START_H
#include "common/model/sentence.h"
#include "common/net/peer_address.h"
#include "router/shards/served_adapters.h"
#include "router/shards/shards.h"

/* SHARD_STATE_CELLS: cells of recurrent state per request, if the model has any. */
enum { SHARD_STATE_CELLS = 2, SHARD_OPTIONS = 256 };

struct shard_model {
    int version;           /* of generate.vN */
    bool requires_padding; /* no block ids: the peer lays out its KV itself, as all v2 peers do */
    bool chunking, prefix_caching, takes_input_ids, copies_kv, takes_edits, takes_chunks,
        takes_bias, takes_reasoning, takes_grammars, takes_windows, takes_images;
    bool has_encoder;       /* the prompt is the text of Request.media */
    uint32_t decoder_start; /* then the first of Request.input_ids */
    uint32_t speculate, block_size, vocab_size, max_positions; /* max_positions 0: unbounded */
    uint64_t sampling_fields;                                  /* bits of param_bit() */
    uint64_t vocab_hash;                                       /* 0: unknown */
    uint64_t checkpoint_hash; /* of the files of all shards; 0: unknown */
    char dtype[32], device[32], quantize[32], activations[16], matrices[256], family[64];
    /* InfoResponse.options, .products, .program_version of rank 0 */
    char options[SHARD_OPTIONS], products[SHARD_OPTIONS], program[32];
    uint64_t parameters, weight_bytes; /* of all shards; 0: unknown */
    enum model_task task;              /* what it is served for. Unless TASK_GENERATE: */
    uint32_t embed_width, hidden_size; /* floats per text, per token */
    uint32_t first_row;                /* of a text's tokens: those before it have no vector */
    float cosine_scale, cosine_plus;   /* of a text's cosine to an image: InfoResponse */
    bool cosines_each;
    bool sparse;        /* of a text: a weight of each token of the vocabulary */
    bool pairs_as_text; /* a reranker that is prompted in text */
    bool wants_labels;  /* set by the caller, who then frees the labels: */
    char **labels;      /* [n_labels] of a classifier */
    uint32_t n_labels;
    /* requested values (0: not requested); warm-up replaces them by the final ones */
    uint32_t max_input_tokens, max_total_tokens, max_batch_prefill_tokens, max_batch_total_tokens;
    uint32_t max_batch_size; /* 0: unlimited; input only */
    /* KV blocks can be stored in lower cache tiers */
    bool offloads;
    bool transfers; /* and exchanged with other services' shards, at: */
    struct peer_hosts transfer_hosts;
    /* capacity of every shard's swap region in blocks */
    uint32_t swap_slots;
    uint64_t swap_block_ns;                        /* ns to move one block there */
    uint32_t state_cells_per_request, state_cells; /* cells; 0: no recurrent state */
    bool wants_windows;                    /* set by the caller if it manages a window cache: */
    uint32_t window_blocks, window_tokens; /* its blocks; tokens its layers attend to; 0: none */
    uint32_t adapter_pages;                /* pages shared by the adapters in use */
    uint32_t runtime_adapters;             /* how many can be loaded at run time */
    /* released by the caller, also after an error; may be NULL */
    struct served_adapters *adapters;
};

/* Why shards of model `m` cannot replace those of `was`; NULL: they can. Whatever a client was
 * promised, or a stream depends on, must be equal. The cache may have another size. */
const char *shard_model_unfit(const struct shard_model *was, const struct shard_model *m);
void shard_labels_free(struct shard_model *m);
/* Runs Info and Warmup. `m` holds the operator's settings on entry and the final values on return.
 * 0 or -1. */
int shards_warmup(struct shards *s, struct shard_model *m, struct err *e);
#endif
