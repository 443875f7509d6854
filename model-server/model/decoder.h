/* decoder.h - a transformer on a device: its weights, its scratch memory, its forward pass.
 *
 * decoder_forward() is the whole model: it reads the spec and calls ops, nothing else. Widths are
 * those of this rank (struct split). One thread. */
#ifndef MODEL_SERVER_MODEL_DECODER_H
#define MODEL_SERVER_MODEL_DECODER_H
#include "model-server/comm/comm.h"
#include "model-server/model/checkpoint/checkpoint.h"
#include "model-server/model/draft.h"
#include "model-server/model/layer.h"
#include "model-server/model/lora/adapters.h"
#include "model-server/model/rope.h"
#include "model-server/model/stage.h"

struct loader; /* loader.h */
struct stored; /* quant/stored.h */

/* Device memory of a pass of T tokens with O rows of logits. */
struct scratch {
    uint32_t max_tokens, max_out;
    void *memory;
    float *x, *n, *r; /* [T, hidden] residual stream, its norm, the sublayer's result */
    float *embedded;  /* [T, hidden] the embedding, if spec_reads_embedding() */
    float *crossed;   /* [T, hidden] with MIXER_CROSS: rows that attend to images */
    /* with spec.altup: [altup.n][tokens of the step][hidden]; with spec.mix: [T][mix.n][hidden];
     * with spec.blend_per: [T][residual_blended_slots()][hidden] */
    float *streams;
    float *carried;              /* [T, hidden] with moe.shortcut: this rank's share; with
                                    spec.two_stacks the result of the stack that waits; [T,
                                    moe.router_width] the router's sum; with
                                    MIXER_RWKV this rank's values of the first layer */
    float *routed, *coefs;       /* [T, altup.n], [T, altup.n * altup.n]; mix_factors() */
    float *narrow, *beside;      /* [T, laurel_rank], [T, hidden] */
    void *mixer, *ffn;           /* work memory of the sublayer that needs most */
    float *rope[SPEC_MAX_ROPES]; /* [T, dim] */
    float *q_scale;              /* [T] with spec.q_growth */
    float *k_in, *v_in;          /* [T][hidden] with layer_spec.apart_inputs */
    float *kept[KEPT_PLACES];    /* [T][hidden] with spec.skip_share */
    uint32_t *kinds;             /* [T] types of tokens, with spec.relative */
    uint32_t *top;               /* [T, mla.index.top] with mla.index: the last selection */
    float *hidden;               /* [T, draft.width] rows for a draft head */
    float *out;                  /* [O, hidden] */
    float *logits;               /* [O, vocabulary slice] */
    float *gathered;             /* [world][O, largest slice]; one rank: unused */
    float *host;                 /* host memory: rope rows to upload, gathered logits to download */
    /* Given rows (image features), on the device and where they are gathered on the host: [1 +
     * spec.n_added][n_given] [hidden]. Not part of `memory`: allocated by the first step that has
     * some. */
    float *given, *given_host;
    uint32_t n_given, cap_given;
    uint32_t *ids;      /* [T] */
    struct span *spans; /* [T] of a pass, see pass.h */
    uint32_t *out_rows; /* [O] */
    /* The rows of output as a step of their own: [O * PASS_ROW_WORDS] and [O], see pass_rows() */
    uint32_t *last;
    struct span *last_spans;
};

struct amount {
    uint64_t bytes, elements;
};

/* Replaces the embedding table, observes the layers' results, and receives the last rows of
 * decoder_encode(): see encoder/tower.h. All functions enqueue ops, between step_begin() and
 * step_end(). */
struct decoder_front {
    /* Rows [first, first + n) of all: `x` is the first of these. embed NULL: ids are looked up */
    void (*embed)(void *arg, float *x, uint32_t first, uint32_t n);
    /* true: x is changed */
    bool (*after)(void *arg, uint32_t layer, float *x, uint32_t first, uint32_t n);
    void (*finish)(void *arg, const float *rows, uint32_t first, uint32_t n);
    void *arg;
};

/* The part of a step that cross-attention layers compute (decoder/cross.c): the step with the rows
 * marked that attend to an image; and these rows as a step of their own, whose sequences are the
 * images' rows. */
struct crossing {
    struct kv_cache *kv; /* keys and values of images, of these layers of this stage; or NULL */
    uint32_t n, cap;     /* rows that attend to an image */
    struct ragged whole, marked, alone; /* whole: the step itself */
    uint32_t *rows, *zeros;
    struct mutual *sees;
    struct span *spans;
    const float **marks; /* [tokens of the step] */
    uint32_t cap_tokens;
};

/* Number of matrices that are stored in a format, or were widened to a type. */
enum { MATRIX_KINDS = 16 };
struct matrix_count {
    const char *name; /* NULL: the list ends */
    bool widened;
    uint32_t n;
};
/* Observes matrices while they are packed (loader_pack()). `before` may replace the data of parts
 * by data of the same shape, which it owns; `after` gets the packed matrix. Both may be NULL. */
struct pack_watch {
    void (*before)(void *arg, struct mat_part *parts, int n);
    void (*after)(void *arg, const struct weight *w, const struct mat_part *parts, int n);
    void *arg;
};

struct decoder {
    const struct backend_ops *ops;
    struct device *dev;
    struct comm *comm; /* the ranks that share each layer */
    /* ranks with the same place in all stages; NULL: one stage holds all layers */
    struct comm *stages;
    struct comm *link;      /* the same ranks, on this device's memory; NULL: see stage_copies() */
    struct stage stage;     /* all layers if the caller leaves it 0 */
    uint32_t smallest_pass; /* tokens, with several stages: the most that one of them needs */
    enum dtype dtype;       /* type on the device of matrices that are not quantised */
    enum quant quant;       /* of the linear layers */
    struct decoder_spec spec;
    struct split split;

    struct weight *embed;         /* [vocabulary slice, hidden] */
    struct weight *other_embed;   /* with spec.n_other: what is added to rows of `embed`, or NULL */
    struct weight *positions;     /* [positions, hidden], of each type of token */
    struct weight *embed_inside;  /* [vocab, spec_inside_width()], or NULL */
    struct weight *embed_project; /* [hidden, embed_dim], or NULL */
    struct weight *spectrum;      /* of all layers of MIXER_FOURIER (mixer/fourier.c), or NULL */
    struct weight *head_project;  /* [embed_dim or hidden, hidden], or NULL */
    float *head_project_bias;     /* with spec.head_dense, or NULL */
    struct norm head_norm;        /* with spec.head_dense */
    float *embed_bias;            /* [hidden], with embed_project */
    struct norm embed_norm, final_norm;
    struct weight *head; /* [vocabulary slice, hidden]; == embed when tied and not quantised */
    float *head_bias, *head_factors;
    struct weight *altup_in[ALTUP_MOST], *altup_out[ALTUP_MOST]; /* [hidden, hidden] of streams from
                                                                    1 on: from stream 0, and back */
    struct first_conv *first_conv;   /* with spec.first_conv (first_conv.h); or NULL */
    const struct ragged *step;       /* whose layers run, for mixers that end it and begin others */
    struct trigram *trigram;         /* with spec.embed_trigram (trigram.h); or NULL */
    struct stack_start *stack_start; /* with spec.two_stacks; or NULL */
    void *residual_last;             /* the part of residual_ops.end(); or NULL */
    struct affine *affine_first;     /* with spec.affine: of the embedding; or NULL */
    struct layer *layers;            /* [spec_all_layers()] */
    float *capture;     /* where later passes store rows for a draft head; NULL: nowhere */
    struct draft draft; /* zero: the model has no draft head, or it is disabled */
    /* Maximum floats per token of a sublayer; of those that are in_tiles. */
    uint32_t mixer_width, ffn_width, tile_width;
    /* NULL, or called after each layer */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    bool sample;           /* weights are measured, not kept: see model_options.measure */
    struct amount weights; /* all of it; of these: */
    struct amount drafts;  /* size of a draft head, including its experts */
    struct amount tables;  /* size of the tables that are only looked up, and of what texts do not
                            * use */
    struct amount experts;
    struct amount copies; /* size of a head that is a second copy of the embedding */
    /* numbers in the feed-forward that was loaded last, all of them and those in experts */
    uint64_t last_ffn, last_ffn_experts;
    /* of the matrices that the checkpoint stores packed */
    struct matrix_count became[MATRIX_KINDS];
    bool kv_rounds; /* kv_desc.rounds of its caches */

    struct rope rope[SPEC_MAX_ROPES];
    struct adapters *adapters; /* NULL: none; the model's */
    struct decoder_front front;
    struct pack_watch watch;
    struct packed *packed; /* the caller's file of packed weights; or NULL */
    bool encodes;          /* `kv` has a layer for each size of keys, and there is no head */
    bool encodes_logits;   /* with `encodes`: there is a head, for decoder_encode_logits() */
    struct kv_cache *kv;
    struct kv_cache *windows; /* of sliding-window layers; NULL: `kv` holds these as well */
    struct crossing cross;    /* of layers of MIXER_CROSS */
    float *state;             /* [n_cells][state_floats]; NULL: not allocated yet */
    uint64_t state_floats;    /* floats of a cell; 0: no layer is recurrent */
    uint32_t n_cells;
    uint32_t kv_window_most; /* over the layers of all stages: maximum of the windows of layers that
                                have one; 0: there are none */
    struct kv_layer *kv_layers; /* [n_kv_layers] what this stage's layers cache, in order */
    /* kv_at: [all layers] index of the cached layer that a layer reads */
    uint32_t n_kv_layers, *kv_at;
    uint32_t *kv_window; /* [n_kv_layers] its window; 0: none */
    uint32_t *kv_in;     /* [n_kv_layers] its index in its cache */
    /* [all layers] of a layer that reads another one's keys: the cached layer of its index keys */
    uint32_t *index_at;
    struct scratch scratch;
    _Atomic int64_t *busy_ns; /* set at each layer, for a watchdog; NULL: not used */
    uint32_t rehearsed;       /* during a rehearsal: 1 + number of collectives so far */
};

static inline bool decoder_has_head(const struct decoder *d)
{
    return !d->encodes || d->encodes_logits;
}

/* Loads this rank's slices of every weight; random ones if `c` is NULL; `how` belongs to `c`. The
 * caller has set ops, dev, comm, stages, dtype, spec and split; call decoder_free() after a
 * failure too. With several stages every matrix is measured first, to divide the layers by their
 * bytes. */
int decoder_load(struct decoder *d, const struct arch *a, const struct checkpoint *c,
                 const struct stored *how, struct err *e);
void decoder_free(struct decoder *d);

/* Of spec.altup (residual/altup.c): loads and frees what all layers share. */
void decoder_altup_load(struct loader *l);
void decoder_altup_free(struct decoder *d);
/* The same of the embedding, with spec.affine (residual/affine.c). */
void decoder_affine_load_first(struct loader *l);
void decoder_affine_free_first(struct decoder *d);
/* Of spec.two_stacks (residual/stacks.c): what both stacks begin with. */
void decoder_stacks_load(struct loader *l);
void decoder_stacks_free(struct decoder *d);

/* Of spec.other (decoder/other.c): loads what is added to the embeddings of these ids, and adds it
 * to t rows of embeddings. */
void decoder_other_load(struct loader *l);
void decoder_other_add(struct decoder *d, float *x, uint32_t t);

/* The same in steps, for walks through a model layer by layer (walk.h): everything except the
 * layers; then one layer at a time, any number of times. The caller sets d, a, c, how and e of
 * `l`, which records an error. */
void decoder_load_outer(struct loader *l);
void decoder_load_layer(struct loader *l, uint32_t layer);
void decoder_free_layer(struct decoder *d, uint32_t layer);
/* One sequence from its beginning, with rows in the caller's memory [n_tokens][hidden]: its
 * embedding; one loaded layer; the last norm and the head. A cache must exist. ERR_VALIDATION: an
 * invalid token. */
int decoder_walk_embed(struct decoder *d, const struct ragged *b, float *x, struct err *e);
int decoder_walk_layer(struct decoder *d, uint32_t layer, const struct ragged *b, float *x,
                       struct err *e);
int decoder_walk_head(struct decoder *d, const struct ragged *b, const float *x, float *logits,
                      struct err *e);

/* See model_forward() and model_reserve(). Steps that exceed the backend's step_bytes are
 * computed in passes. */
int decoder_forward(struct decoder *d, const struct ragged *b, float *logits, struct err *e);
/* Its last feed-forward runs on the rows of output alone, since they are few. */
bool decoder_runs_few(const struct decoder *d, const struct ragged *b);
/* model_draw() */
int decoder_draw(struct decoder *d, const struct ragged *b, const struct draw *v, int set,
                 struct err *e);
int decoder_reserve(struct decoder *d, uint32_t max_tokens, uint32_t max_out, struct err *e);
/* Of a sublayer that is in_tiles: the number of tiles of so many rows; the i-th of n, which begins
 * at a multiple of 16 rows. The operation for adapters takes all rows of a step: with them there is
 * one tile. */
uint32_t decoder_tiles(const struct decoder *d, uint32_t rows);
struct slice decoder_tile(uint32_t rows, uint32_t i, uint32_t n);
/* Tokens of a pass with the best throughput, or UINT32_MAX: see step_bytes of backend.h. */
uint32_t decoder_pass_tokens(const struct decoder *d);
/* Hidden states of a step, after the last norm, to the caller's memory (or NULL): of b->out_rows
 * [n_out][hidden], or of all tokens if n_out is 0. With few rows of output it is faster. One pass
 * of any size: no sequence continues from an earlier one. `encodes` is set. *at (or NULL): their
 * address on the device until the next call. */
int decoder_encode(struct decoder *d, const struct ragged *b, float *out, const float **at,
                   struct err *e);
/* The logits of all tokens of such a step, DECODER_LOGIT_ROWS tokens at a time: `each` gets those
 * of tokens [first, first + n) in `logits`, [n][vocab], which is the caller's. NULL: this rank does
 * not need them. `encodes_logits` is set. */
enum { DECODER_LOGIT_ROWS = 64 };
struct logit_reader {
    void (*each)(void *arg, const float *logits, uint32_t first, uint32_t n);
    void *arg;
    float *logits;
};
int decoder_encode_logits(struct decoder *d, const struct ragged *b, const struct logit_reader *to,
                          struct err *e);
/* decoder_encode() in parts, between which other decoders of the device may run. decoder_front's
 * finish() gets multiples of `unit` rows at a time, as after() does. `b` must stay valid and the
 * decoder does nothing else until `over`. The bits are those of decoder_encode(). */
struct decoder_walk {
    bool over;
    const struct ragged *b;
    uint32_t unit;
    uint32_t phase, layer, row; /* what comes next */
    const float *rows;          /* for finish() */
};
int decoder_walk_begin(struct decoder *d, const struct ragged *b, uint32_t unit,
                       struct decoder_walk *w, struct err *e);
/* Continues with about `most` multiply-adds (of all ranks), or slightly more if `most` is very
 * small; *done: their number. It depends only on sizes, so ranks stay in step. */
int decoder_walk_on(struct decoder *d, struct decoder_walk *w, uint64_t most, uint64_t *done,
                    struct err *e);
/* Rows of images in device memory (decoder/cross.c). Number of layers of this stage that attend to
 * them; bytes of a block of them on this rank, 0: none. */
uint32_t decoder_cross_layers(const struct decoder *d);
uint64_t decoder_cross_block_bytes(const struct decoder *d, enum kv_dtype dtype);
/* The type of the caches of an encoder: 16 bits on a device that has faster attention to both sides
 * beside weights in 16 bits, and has it for heads of this size; else fp32. */
enum kv_dtype decoder_encode_kv(const struct decoder *d);
/* For passes that keep nothing: one layer's cache of at least n_blocks in d->kv. A smaller one is
 * replaced, and its contents are lost. *has: its blocks, 0 without one. */
int decoder_kv_reserve(struct decoder *d, uint32_t n_blocks, uint32_t block_size,
                       enum kv_dtype dtype, uint32_t *has, struct err *e);
/* Replaces the cache, whose contents are lost. n_blocks 0: frees it. */
int decoder_cross_resize(struct decoder *d, uint32_t n_blocks, enum kv_dtype dtype, struct err *e);
/* Stores keys and values of rows [n][hidden] of host memory at places [first, first + n) of
 * `blocks`. */
int decoder_cross_store(struct decoder *d, const float *rows, const uint32_t *blocks,
                        uint32_t first, uint32_t n, struct err *e);

/* Allocates the backend's own memory for a step like `b`, without computing it. A cache must
 * exist. */
int decoder_rehearse(struct decoder *d, const struct ragged *b, struct err *e);
uint64_t decoder_scratch_bytes(const struct decoder *d, uint32_t max_tokens, uint32_t max_out);
#endif
