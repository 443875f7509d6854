/* model.h - a loaded model: weights on a device and the forward pass over ragged batches.
 *
 * A model knows no request, no sampling and no text: ids and positions in, logits out. One thread.
 */
#ifndef MODEL_SERVER_MODEL_MODEL_H
#define MODEL_SERVER_MODEL_MODEL_H
#include "common/err.h"
#include "common/sentence.h"
#include "model-server/backend/backend.h"
#include "model-server/comm/comm.h"
#include "model-server/model/adapters.h"
#include "model-server/model/draft/draft.h"

struct packed;
struct model_options {
    const struct backend_ops *ops;
    struct device *dev;
    struct comm *comm; /* rank and world: which slice of each layer's weights to take */
    /* NULL, or a rank for each stage of layers, of which this is one (stage.h): in the order of the
     * layers. The ranks of `comm` are in one stage. Not on devices with memory of their own. */
    struct comm *stages;
    bool expert_parallel; /* ranks of `comm` have experts in whole, not a part of each */
    int dtype;            /* enum dtype, or -1: as stored in the checkpoint */
    enum quant quant;     /* of the linear layers, made at load, see loader.h */
    enum activations activations;
    /* The word of --quantize, or NULL: for a checkpoint that is stored quantised it has to agree.
     */
    const char *quantize;
    /* The text of a config.json: random weights of its shape, in bf16, instead of a checkpoint. */
    const char *random_config;
    const char *rope_scaling; /* "linear", "dynamic" or NULL: replaces config.json's (TGI's
                                 --rope-scaling) */
    double rope_factor;
    const struct adapter_source *adapters; /* names must outlive the model */
    uint32_t n_adapters, extra_adapters;   /* extra: places for those that come later */
    bool draft_heads;                      /* the checkpoint's, if it has some */
    const char *draft_dir; /* with draft_heads: those of this folder instead; NULL: none */
    /* What it is to be: TASK_AUTO as the files say. Models that are not to generate have no head
     * and no cache of whole sequences. TASK_RERANK of a decoder without a classifier: how likely
     * the token `yes` is beside `no`. */
    enum model_task task;
    uint32_t yes, no;
    /* To find out what a load would take: every tensor is looked for and checked, a few rows of
     * each matrix are packed, and what the whole takes is reckoned from them. The result has
     * model_info() and sizes, and no weights: no step can be computed. `comm` is not used but for
     * its numbers. */
    bool measure;
    /* Called now and then while weights are loaded, where it is set: layers done, of so many. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    _Atomic int64_t *busy_ns; /* set to the time at each layer of a step; NULL: not wanted */
    /* Packed weights are found there, or kept: packed/packed.h; NULL: neither. Closed before the
     * model is freed. Not of random weights. */
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
    bool learned_positions; /* there is nothing beyond max_positions */
    uint32_t window;        /* sliding window of the layers that have one; 0: none */
    uint32_t kv_window; /* tokens that those cached layers see at most that do not see all; 0: no
                           such layer. See model_kv_resize_apart() */
    enum dtype dtype;
    enum quant quant;
    enum arith arith;   /* of products with packed weights; of plain ones describe() tells */
    const char *stored; /* quant_method of the checkpoint, or "plain" */
    /* Which formats the matrices have that the checkpoint holds packed, with their number, and how
     * many were widened: "q4_k 60, q6_k 10, widened to bfloat16 2"; empty where there are none. */
    char matrices[256];
    uint64_t weight_bytes; /* on this rank */
    uint64_t mapped_bytes; /* of a file that they are views of: memory that the system calls free */
    /* What a token reads of these, and its multiplications and additions without attention's: the
     * part that all tokens share; all experts of all layers; the share of these that one chooses.
     */
    uint64_t dense_bytes, dense_ops, expert_bytes, expert_ops;
    double expert_share;
    uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim; /* whole model */
    uint32_t first_layer, layers_here; /* of the stage that this rank is in */
    bool by_length; /* rotations look at the length of the sequence (dynamic, longrope): keys of a
                       prefix are right only for a sequence of that length, so none are shared */
    struct model_draft draft;
    uint64_t state_bytes; /* of a cell of recurrent state on this rank; 0: the model has none */
    bool enqueues;        /* model_draw() returns without waiting: no collective needs the host */
    enum model_task task; /* never TASK_AUTO */
    uint32_t width;       /* of a text's result; 0: it generates */
    uint32_t max_length;  /* tokens of a text; 0: unbounded */
    bool both_ways;       /* an encoder */
    bool asks_yes_no;     /* a reranker without a classifier */
    char *const *labels;  /* [width] of a classifier or reranker, owned by the model; or NULL */
    const uint32_t *eos;  /* generation_config.json's, else config.json's; owned by the model */
    uint32_t n_eos;
};

struct model;
struct decoder; /* decoder.h */

/* `dir` holds config.json and the weights (model.safetensors, or a sharded index); with
 * random_config it is a name for messages. ERR_VALIDATION
 * for what the checkpoint says (unknown model_type, missing tensor, wrong shape: one line naming
 * file and tensor), ERR_SYSTEM for files and memory. The caller owns the result; `o` is copied,
 * what it points to must outlive it. */
struct model *model_load(const char *dir, const struct model_options *o, struct err *e);
void model_free(struct model *m); /* NULL is fine */
const struct model_info *model_info(const struct model *m);
struct adapters *model_adapters(struct model *m); /* NULL: it has none */
/* Its device, ranks and types, for what is loaded beside it. */
const struct decoder *model_decoder(const struct model *m);

/* KV cache. A block holds block_size positions of all layers of this rank. */
/* What `--kv-cache-dtype auto` means: 16 bits, or 32 for a model in fp32, as the weights are
 * stored, so that the cache is never what a result loses most by; 32 for texts that are not kept,
 * but for decoders on a GPU. Quantised weights: bfloat16. */
enum kv_dtype model_kv_dtype(const struct model *m);
uint64_t model_kv_block_bytes(const struct model *m, uint32_t block_size, enum kv_dtype kv_dtype);
/* Allocate (first call) or replace (contents are lost) the cache. */
int model_kv_resize(struct model *m, uint32_t n_blocks, uint32_t block_size, enum kv_dtype kv_dtype,
                    struct err *e);
/* Layers that see kv_window tokens at most may have a cache of their own. What a block of each of
 * the two takes; `windows` 0: there are no such layers. */
struct kv_apart {
    uint64_t blocks, windows;
};
struct kv_apart model_kv_apart(const struct model *m, uint32_t block_size, enum kv_dtype kv_dtype);
/* As model_kv_resize(), with n_windows blocks for these layers and n_blocks for the others. Steps
 * have span.windows and ragged.window_slots then. n_windows 0: one cache for all. */
int model_kv_resize_apart(struct model *m, uint32_t n_blocks, uint32_t n_windows,
                          uint32_t block_size, enum kv_dtype kv_dtype, struct err *e);
int model_kv_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                  struct err *e);
/* The same for blocks of windows, where these are apart. */
int model_window_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                      struct err *e);
/* Layers that attend to pictures have a cache of their own, of pictures' rows: see MIXER_CROSS. A
 * block holds MODEL_CROSS_BLOCK rows of all such layers of this rank. 0 bytes: the model has none.
 */
enum { MODEL_CROSS_BLOCK = 16 };
uint64_t model_cross_block_bytes(const struct model *m, enum kv_dtype kv_dtype);
/* Allocate (first call) or replace (contents are lost); n_blocks 0: free. */
int model_cross_resize(struct model *m, uint32_t n_blocks, enum kv_dtype kv_dtype, struct err *e);
/* Keys and values of n rows [n][hidden] of the host's, to places [first, first + n) of the table
 * `blocks`; in order with the steps. */
int model_cross_store(struct model *m, const float *rows, const uint32_t *blocks, uint32_t first,
                      uint32_t n, struct err *e);
/* Multiplications and additions of a row, on all ranks and in all stages. */
uint64_t model_cross_row_cost(const struct model *m);
/* Recurrent state, where the model has some. A cell has that of one sequence after so many tokens:
 * see struct span. Allocate (first call) or replace (contents are lost) the pool. */
int model_state_resize(struct model *m, uint32_t n_cells, struct err *e);
/* Cell dst[i] becomes cell src[i] for n pairs, in this order and in order with the steps. The
 * caller has checked the numbers. */
int model_state_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                     struct err *e);

/* Host memory for n_slots blocks of this rank that are swapped out; contents are lost. 0: none.
 * ERR_VALIDATION where the backend cannot. After model_kv_resize(). *block_ns: what moving a block
 * there takes. */
int model_swap_resize(struct model *m, uint32_t n_slots, int64_t *block_ns, struct err *e);
/* Pairs of a block and a slot, in order with the steps. The caller has checked the numbers. */
int model_swap_out(struct model *m, const uint32_t *blocks, const uint32_t *slots, uint32_t n,
                   struct err *e);
int model_swap_in(struct model *m, const uint32_t *blocks, const uint32_t *slots, uint32_t n,
                  struct err *e);

/* The caches of this rank, as they are laid out now, one block or cell at a time. The layout of its
 * bytes outside is the backend's own. */
enum cache_kind { CACHE_BLOCK, CACHE_WINDOW, CACHE_STATE, N_CACHE_KINDS };
/* Bytes of a block, a block of windows, a cell; 0: there is no such cache, or the backend does not
 * copy it. */
void model_cache_bytes(const struct model *m, uint64_t bytes[N_CACHE_KINDS]);
/* Number `at` of a cache to `host`, in order with the steps. The caller has checked the number. It
 * is there after model_export_wait(). */
int model_export(struct model *m, enum cache_kind kind, uint32_t at, void *host, struct err *e);
int model_export_wait(struct model *m, struct err *e);
/* And back. */
int model_import(struct model *m, enum cache_kind kind, uint32_t at, const void *host,
                 struct err *e);

/* One step: logits of b->n_out rows, fp32, [n_out][vocab], into the caller's memory; all ranks get
 * all of it. Scratch memory grows with the largest batch seen and is then reused: model_reserve()
 * does it ahead. */
int model_forward(struct model *m, const struct ragged *b, float *logits, struct err *e);
/* The same where the backend has draw(): tokens are chosen from those rows by `v` [n_out, not 0]
 * into a set of its results, without waiting. ops->drawn() has them. */
int model_draw(struct model *m, const struct ragged *b, const struct draw *v, int set,
               struct err *e);
/* The next model_forward() or model_draw() gives draft.width numbers of each token, for a draft
 * head, into host memory [n_tokens][width]. The latter then waits for its pass. */
void model_capture(struct model *m, float *rows);
/* Rows of the draft head: logits of drafts, and the keys of tokens that lead to them. */
int model_draft(struct model *m, const struct draft_step *x, struct err *e);
int model_reserve(struct model *m, uint32_t max_tokens, uint32_t max_out, struct err *e);
/* What the backend itself needs for steps of up to `tokens` tokens and `rows` sequences of up to
 * `longest` tokens, taken now: such steps allocate nothing later. Replaces the cache and the state
 * by small ones; `windows`: of steps with a cache of windows.
 */
int model_rehearse(struct model *m, uint32_t tokens, uint32_t rows, uint32_t longest,
                   uint32_t block_size, enum kv_dtype kv_dtype, bool windows, struct err *e);
/* Texts to vectors or scores (model_info.task): of each text out[width], or with `all` the hidden
 * state of each token, out[tokens of all texts][hidden]; `out` NULL on a rank that needs none.
 * ERR_VALIDATION for a text that is empty or too long. */
struct model_text {
    const uint32_t *ids;
    const uint8_t *types; /* [n] segments, or NULL: all 0 */
    uint32_t n;
    uint32_t skip; /* tokens of a prompt that are left out of a mean */
};
int model_encode(struct model *m, const struct model_text *texts, uint32_t n, bool all, float *out,
                 struct err *e);
/* Memory for batches of so many tokens, ahead of them. Before the first model_encode(). */
int model_encode_reserve(struct model *m, uint32_t tokens, uint32_t texts, enum kv_dtype kv_dtype,
                         struct err *e);
uint64_t model_scratch_held(const struct model *m); /* bytes that are reserved now */
/* That model_reserve() would take. */
uint64_t model_scratch_bytes(const struct model *m, uint32_t max_tokens, uint32_t max_out);
#endif
