/* model.h - a loaded model: weights on a device and the forward pass over ragged batches.
 *
 * A model is independent of requests, sampling and text: ids and positions in, logits out. One
 * thread. */
#ifndef MODEL_SERVER_MODEL_MODEL_H
#define MODEL_SERVER_MODEL_MODEL_H
#include "common/err.h"
#include "common/model/sentence.h"
#include "model-server/backend/backend.h"
#include "model-server/comm/comm.h"
#include "model-server/model/draft.h"
#include "model-server/model/lora/adapters.h"

struct packed;
struct model_options {
    const struct backend_ops *ops;
    struct device *dev;
    struct comm *comm; /* rank and world: which slice of each layer's weights to load */
    /* NULL, or one rank of each pipeline stage (stage.h), including this one, in the order of the
     * layers. The ranks of `comm` are in one stage. Not on devices with memory of their own. */
    struct comm *stages;
    bool expert_parallel; /* expert parallelism: each rank of `comm` has whole experts */
    int dtype;            /* enum dtype, or -1: as stored in the checkpoint */
    enum quant quant;     /* scheme for the linear layers, applied at load, see loader.h */
    enum activations activations;
    /* The value of --quantize, or NULL: it must match a checkpoint that is stored quantised. */
    const char *quantize;
    /* The text of a config.json: random weights of its shape, in bf16, instead of a
     * checkpoint. */
    const char *random_config;
    const char *rope_scaling; /* "linear", "dynamic" or NULL: overrides config.json's (TGI's
                                 --rope-scaling) */
    double rope_factor;
    const struct adapter_source *adapters; /* names must outlive the model */
    uint32_t n_adapters, extra_adapters;   /* extra: slots for later ones */
    bool draft_heads;                      /* use the checkpoint's draft heads, if any */
    const char *draft_dir; /* with draft_heads: use those of this folder instead; NULL: none */
    /* TASK_AUTO: by the files. Models that do not generate have no head and no cache of whole
     * sequences. */
    enum model_task task;
    uint32_t pooling; /* of TASK_EMBED: an index of sentence_pooling_choices; 0: by the files */
    uint32_t cutoff_layer; /* of a layerwise reranker: layers that are used; 0: all */
    /* TASK_RERANK of a decoder without a classifier: the id of a token that answers; -1: none. */
    int64_t (*id_of)(const void *vocabulary, const char *token);
    const void *vocabulary;
    /* Measures the result of a load: every tensor is found and checked, a few rows of each matrix
     * are packed, and total sizes are extrapolated. The result has model_info() and sizes, but no
     * weights: no step can be computed. Only the numbers of `comm` are used. */
    bool measure;
    /* Called now and then during a load, or NULL: layers done, and their total. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    _Atomic int64_t *busy_ns; /* set to the time at each layer of a step; NULL: not used */
    /* File of packed weights to use or write: packed/packed.h; NULL: none. Closed before the
     * model is freed. Not with random weights. */
    struct packed *packed;
};

/* See draft/draft.h. */
struct model_draft {
    const char *kind;     /* NULL: there is none */
    uint32_t width, most; /* struct draft_plan's */
    bool keeps, chains;
};

struct model_info {
    const char *type;       /* model_type of config.json */
    uint32_t vocab;         /* rows of the head = length of a logit row */
    uint32_t max_positions; /* 0: unbounded */
    bool bounded;           /* positions beyond max_positions do not exist */
    /* with attends_text and `bounded`: those of the encoder's and of the decoder's tables, whose
     * sum is max_positions; else 0 */
    uint32_t text_positions, answer_positions;
    uint32_t window;    /* sliding window of the layers with one; 0: none */
    uint32_t kv_window; /* window of the cached sliding-window layers; 0: no such layer. See
                           model_kv_resize_apart() */
    enum dtype dtype;
    enum quant quant;
    /* arithmetic of products with packed weights; for plain ones see describe() */
    enum arith arith;
    const char *stored; /* quant_method of the checkpoint, or "plain" */
    /* Formats of the matrices that the checkpoint stores packed, with their counts, and how many
     * were widened: "q4_k 60, q6_k 10, widened to bfloat16 2"; empty if there are none. */
    char matrices[256];
    uint64_t weight_bytes; /* on this rank */
    /* of this rank's matrices, without draft heads; a tied head and its embedding count once */
    uint64_t parameters;
    /* of a file that they are views of: memory that the system counts as free */
    uint64_t mapped_bytes;
    /* Bytes that a token reads, and its multiply-adds without attention: the part that all tokens
     * share; all experts of all layers; the share of these that one token uses. */
    uint64_t dense_bytes, dense_ops, expert_bytes, expert_ops;
    double expert_share;
    /* Of the operations above: those that a step with few rows of output needs for these rows
     * alone, in its last feed-forward. */
    uint64_t few_dense_ops, few_expert_ops;
    uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim; /* whole model */
    uint32_t first_layer, layers_here;                        /* of this rank's stage */
    bool by_length; /* rotations depend on the length of the sequence (dynamic, longrope): keys of a
                       prefix are only valid for a sequence of that length, so prefixes are not
                       shared */
    /* Tokens of pictures, and those of a prompt with one of these ids, have experts of their own
     * (ragged.sight). */
    bool sight;
    uint32_t sight_ids[2];
    struct model_draft draft;
    /* bytes of a cell of recurrent state on this rank; 0: the model has none */
    uint64_t state_bytes;
    bool enqueues;        /* model_draw() returns without waiting: no collective uses the host */
    bool rounds;          /* kv_desc.rounds of its caches */
    enum model_task task; /* never TASK_AUTO */
    uint32_t width;       /* width of a text's result; 0: it generates */
    uint32_t row_width;   /* width of a token's, if all are asked for */
    uint32_t first_row;   /* of a text's tokens: those before it have no vector */
    float cosine_scale, cosine_plus; /* as struct head_cosines */
    bool cosines_each;
    bool sparse;         /* which is a weight of each token of the vocabulary, most of them 0 */
    uint32_t max_length; /* most tokens of a text; 0: unbounded */
    bool both_ways;      /* an encoder */
    /* The prompt is the input of an encoder beside the model (text_encoder.h); what the model
     * itself reads begins with token `start`. */
    bool attends_text;
    uint32_t start;
    bool pairs_as_text;  /* a reranker without a classifier: common/model/pair_form.h */
    char *const *labels; /* [width] of a classifier or reranker, owned by the model; or NULL */
    const uint32_t *eos; /* from generation_config.json, else config.json; owned by the model */
    uint32_t n_eos;
};

struct model;
struct decoder; /* decoder.h */

/* `dir` contains config.json and the weights (model.safetensors, or a sharded index); with
 * random_config it is a name for messages. ERR_VALIDATION for errors of the checkpoint (unknown
 * model_type, missing tensor, wrong shape: one line naming file and tensor), ERR_SYSTEM for files
 * and memory. The caller owns the result. `o` is copied; its pointers must stay valid. */
struct model *model_load(const char *dir, const struct model_options *o, struct err *e);
void model_free(struct model *m); /* NULL is fine */
const struct model_info *model_info(const struct model *m);
struct adapters *model_adapters(struct model *m); /* NULL: it has none */
/* Its device, ranks and types, for a vision tower or draft head beside it. */
const struct decoder *model_decoder(const struct model *m);

/* KV cache. A block holds block_size positions of all layers of this rank. */
/* The type of `--kv-cache-dtype auto`: 16 bits, or 32 for a model in fp32, as the weights are
 * stored, so that the cache is never the largest source of error. 32 if texts are not kept,
 * except for decoders on a GPU. Quantised weights: bfloat16. */
enum kv_dtype model_kv_dtype(const struct model *m);
uint64_t model_kv_block_bytes(const struct model *m, uint32_t block_size, enum kv_dtype kv_dtype);
/* Allocates (first call) or replaces (contents are lost) the cache. */
int model_kv_resize(struct model *m, uint32_t n_blocks, uint32_t block_size, enum kv_dtype kv_dtype,
                    struct err *e);
/* Sizes of blocks if sliding-window layers with at most kv_window tokens have a separate cache;
 * `windows` 0: there are no such layers. */
struct kv_apart {
    uint64_t blocks, windows;
};
struct kv_apart model_kv_apart(const struct model *m, uint32_t block_size, enum kv_dtype kv_dtype);
/* As model_kv_resize(), with n_windows blocks for these layers and n_blocks for the others. Steps
 * must then set span.windows and ragged.window_slots. n_windows 0: one cache for all. */
int model_kv_resize_apart(struct model *m, uint32_t n_blocks, uint32_t n_windows,
                          uint32_t block_size, enum kv_dtype kv_dtype, struct err *e);
int model_kv_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                  struct err *e);
/* The same for blocks of a separate sliding-window cache. */
int model_window_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                      struct err *e);
/* Cross-attention layers have a separate cache for images' rows (MIXER_CROSS). A block holds
 * MODEL_CROSS_BLOCK rows of all such layers of this rank. 0 bytes: the model has none. */
enum { MODEL_CROSS_BLOCK = 16 };
uint64_t model_cross_block_bytes(const struct model *m, enum kv_dtype kv_dtype);
/* Allocates (first call) or replaces (contents are lost) the cache; n_blocks 0: frees it. */
int model_cross_resize(struct model *m, uint32_t n_blocks, enum kv_dtype kv_dtype, struct err *e);
/* Stores keys and values of n rows [n][hidden] of host memory at places [first, first + n) of the
 * table `blocks`, in order with the steps. */
int model_cross_store(struct model *m, const float *rows, const uint32_t *blocks, uint32_t first,
                      uint32_t n, struct err *e);
/* Multiply-adds of a row, on all ranks and in all stages. */
uint64_t model_cross_row_cost(const struct model *m);
/* Recurrent state, if the model has some. A cell holds the state of one sequence after this many
 * tokens: see struct span. Allocates (first call) or replaces (contents are lost) the pool. */
int model_state_resize(struct model *m, uint32_t n_cells, struct err *e);
/* Copies cell src[i] to dst[i] for n pairs, in this order and ordered with the steps. The caller
 * has checked the numbers. */
int model_state_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                     struct err *e);

/* Allocates host memory for n_slots swapped blocks of this rank; contents are lost. 0: none.
 * ERR_VALIDATION: the backend does not support it. Call it after model_kv_resize(). *block_ns:
 * the time to move one block. */
int model_swap_resize(struct model *m, uint32_t n_slots, int64_t *block_ns, struct err *e);
/* Moves blocks to slots or back, ordered with the steps. The caller has checked the numbers. */
int model_swap_out(struct model *m, const uint32_t *blocks, const uint32_t *slots, uint32_t n,
                   struct err *e);
int model_swap_in(struct model *m, const uint32_t *blocks, const uint32_t *slots, uint32_t n,
                  struct err *e);

/* Export and import of this rank's caches, one block or cell at a time. The exported layout is
 * the backend's own. */
enum cache_kind { CACHE_BLOCK, CACHE_WINDOW, CACHE_STATE, N_CACHE_KINDS };
/* Bytes of a block, a sliding-window block, a cell; 0: there is no such cache, or the backend
 * cannot copy it. */
void model_cache_bytes(const struct model *m, uint64_t bytes[N_CACHE_KINDS]);
/* Copies entry `at` of a cache to `host`, ordered with the steps. The caller has checked the
 * number. The copy is complete after model_export_wait(). */
int model_export(struct model *m, enum cache_kind kind, uint32_t at, void *host, struct err *e);
int model_export_wait(struct model *m, struct err *e);
/* And back. */
int model_import(struct model *m, enum cache_kind kind, uint32_t at, const void *host,
                 struct err *e);

/* Runs one step: logits of b->n_out rows, fp32, [n_out][vocab], to the caller's memory; all ranks
 * get all of them. Scratch memory grows with the largest batch and is then reused;
 * model_reserve() allocates it in advance. */
int model_forward(struct model *m, const struct ragged *b, float *logits, struct err *e);
/* The same if the backend has draw(): samples tokens from those rows by `v` [n_out, not 0] into a
 * set of its results, without waiting. ops->drawn() returns them. */
int model_draw(struct model *m, const struct ragged *b, const struct draw *v, int set,
               struct err *e);
/* The next model_forward() or model_draw() stores draft.width numbers per token, for a draft
 * head, in host memory [n_tokens][width]. The latter then waits for its pass. */
void model_capture(struct model *m, float *rows);
/* Runs rows of the draft head: logits of drafts, and the keys of the tokens before them. */
int model_draft(struct model *m, const struct draft_step *x, struct err *e);
int model_reserve(struct model *m, uint32_t max_tokens, uint32_t max_out, struct err *e);
/* Allocates the backend's own memory for steps of up to `tokens` tokens and `rows` sequences of
 * up to `longest` tokens: such steps allocate nothing later. Replaces the cache and the state by
 * small ones; `windows`: steps have a sliding-window cache. */
int model_rehearse(struct model *m, uint32_t tokens, uint32_t rows, uint32_t longest,
                   uint32_t block_size, enum kv_dtype kv_dtype, bool windows, struct err *e);
/* Converts texts to vectors or scores (model_info.task): out[width] of each text, or with `all`
 * the hidden state of each token, out[tokens of all texts][hidden]; `out` is NULL on ranks that
 * need none. ERR_VALIDATION: a text is empty or too long. */
struct model_text {
    const uint32_t *ids;
    const uint8_t *types; /* [n] segments, or NULL: all 0 */
    uint32_t n;
    uint32_t skip; /* tokens of a prompt that are excluded from a mean */
    /* Tokens from here on are attended to by none, and attend to those before; 0: all are. Only
     * of models with attention alone, and none of whose windows are shorter than the text. */
    uint32_t attended;
    /* with `all`: the only tokens whose rows are results, ascending, below n; NULL: all of them */
    const uint32_t *rows;
    uint32_t n_rows;
    uint32_t adapter; /* number of one that is pinned (lora/adapters.h); 0: the base model */
    /* [n] of a text with images, else NULL: as in struct ragged. axes and mutual may be NULL. */
    const float *const *given;
    const uint32_t (*axes)[3];
    const struct mutual *mutual;
};
/* Rows that a text has with `all`. */
static inline uint32_t model_text_rows(const struct model_text *t)
{
    return t->rows ? t->n_rows : t->n;
}
int model_encode(struct model *m, const struct model_text *texts, uint32_t n, bool all, float *out,
                 struct err *e);
/* Before that: ERR_VALIDATION for wrong text.rows, or if the model has no such text.attended. */
int model_check_text(const struct model *m, const struct model_text *t, struct err *e);
/* Allocates memory for batches of this many tokens in advance. Before the first model_encode(). */
int model_encode_reserve(struct model *m, uint32_t tokens, uint32_t texts, enum kv_dtype kv_dtype,
                         struct err *e);
uint64_t model_scratch_held(const struct model *m); /* bytes that are currently reserved */
/* Bytes that model_reserve() would allocate. */
uint64_t model_scratch_bytes(const struct model *m, uint32_t max_tokens, uint32_t max_out);
#endif
