/* backend.h - the one seam between the layers of a model and a device.
 *
 * A backend is a folder backend/<name>/ that fills `struct backend_ops`. Operations are ragged (one
 * flat list of tokens, see struct ragged), fused where every device gains, and explicit about
 * shapes. They may enqueue and return; download(), drawn() and step_end() wait. Activations are
 * fp32 rows on the CPU and whatever the device likes elsewhere: the model sees only pointers from
 * alloc() and element counts.
 *
 * Invariance: every op computes a row of its result from that row's inputs alone, in an order that
 * depends on the shapes of the weights and on absolute positions only. Batch size, chunking and
 * neighbours therefore never change a bit of a result.
 *
 * Each op's meaning is its plain C reference in backend/cpu/. */
#ifndef MODEL_SERVER_BACKEND_BACKEND_H
#define MODEL_SERVER_BACKEND_BACKEND_H
#include "common/err.h"
#include "model-server/backend/draw.h"
#include "model-server/backend/format.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype { DT_F32, DT_F16, DT_BF16, DT_N };
static inline size_t dtype_size(enum dtype t) { return t == DT_F32 ? 4 : 2; }
const char *dtype_name(enum dtype t); /* "float32", "float16", "bfloat16" */

/* What --quantize makes of numbers at load: a format and an arithmetic. Symmetric, never a zero
 * point. A number that is not finite makes its row (of weights) or its token (of
 * activations) NaN; nothing else is touched by it.
 *   INT8  8-bit weights, a scale per output row; activations and sums stay fp32.
 *   W8A8  the same weights; activations are rounded to 8 bits with a scale per token; exact sums.
 *   INT4  4-bit weights, a scale per row and group of 32 columns; activations are rounded to 8 bits
 *         with a scale per token and group; sums exact within a group, fp32 over groups.
 *   FP8   8-bit floating-point weights (e4m3), a scale per output row; activations as with INT8.
 * A device may round activations to 16 bits instead, in INT8, FP8 and INT4: its describe() and its
 * documentation say so. */
enum quant { QUANT_NONE, QUANT_INT8, QUANT_W8A8, QUANT_INT4, QUANT_FP8, QUANT_N };
const char *quant_name(enum quant q);            /* "none", "int8", "w8a8", "int4", "fp8" */
const struct format *quant_format(enum quant q); /* NULL: none */
enum arith quant_arith(enum quant q);
/* The words of --quantize: NULL, "", none and auto; int8 and eetq; w8a8; int4; fp8; and those for
 * checkpoints that are stored quantised, which leave nothing to do at load: gptq, awq, marlin,
 * compressed-tensors. ERR_VALIDATION for any other. */
int quant_parse(const char *word, enum quant *out, struct err *e);
enum { QUANT_MAX_COLS = 65536 }; /* of a quantised matrix: exact sums fit 32 bits */

/* ---------------------------------------------------------------- weights */

/* Numbers that are stored in a format: rows of `cols`, a multiple of its groups and blocks, which
 * begin with the row. */
struct mat_codes {
    struct format format;
    uint8_t *codes;           /* [rows][cols] */
    uint16_t *scale, *offset; /* f16 [rows][cols / block], |scale| <= 256 */
    int8_t *by, *less;        /* [rows][cols / group] */
    float *factor;            /* [rows], of those with `factors` */
    uint32_t *order;          /* of `ordered` ones: column k here is column order[k] of the matrix,
                                 for all of its parts */
};

/* A matrix in the checkpoint: element (r, c) is data[r * row_stride + c * col_stride]. Strides make
 * transposed storage (GPT-2) and tensor-parallel slices free of copies. */
struct random_tensor; /* random_tensor.h */
struct stored_matrix; /* model/quant/stored.h */
enum source {
    SOURCE_NUMBERS, /* `data` has them */
    SOURCE_RANDOM,  /* no data: place 0 is element `first` of `random`, in bfloat16 */
    SOURCE_STORED,  /* the loader's, no backend sees one: `data` is still to be made of `stored` */
    SOURCE_CODES    /* `codes` instead of data; of all parts of a matrix, or of none */
};
struct mat_part {
    const void *data;
    enum dtype dtype;
    int64_t rows, cols, row_stride, col_stride; /* in elements */
    enum source source;
    uint64_t first;
    union {
        const struct random_tensor *random;
        const struct stored_matrix *stored;
        const struct mat_codes *codes;
        /* Of NUMBERS for QUANT_INT4: NULL, or they are in 4 bits already, in fp32 and rows without
         * gaps. Scale (r, g), in bfloat16, is scales[r * groups + g] of ceil(cols / 32) groups. It
         * is taken instead of one that fits best. */
        const uint16_t *scales;
    };
    /* The tensor of the checkpoint that it is cut out of, from element `first` on, for observers of
     * what is loaded; NULL: none. */
    const char *name;
};

/* What the layers multiply with: `n_parts` parts stacked by rows (q over k over v, gate over up),
 * all with the same cols. The backend copies and packs; the source may be unmapped afterwards. */
struct mat_desc {
    const struct mat_part *parts;
    int n_parts;
    enum dtype dtype; /* storage wanted on the device; with `quant`: of the activations, where the
                         device rounds them */
    enum quant quant; /* each rank of a split by columns quantises its own slice */
    enum arith arith; /* of products with parts that are SOURCE_CODES: EXACT or INT8 */
};
struct weight; /* opaque: a packed matrix [rows, cols] */

/* A packed matrix as bytes: what a file of packed weights holds of it. `head` is everything but its
 * memory, in the backend's own layout; `piece` is the memory, unused ones have 0 bytes. */
enum { WEIGHT_HEAD = 128, WEIGHT_PIECES = 3, WEIGHT_ALIGN = 4096 };
struct weight_image {
    uint8_t head[WEIGHT_HEAD];
    struct weight_piece {
        const void *data;
        uint64_t bytes;
    } piece[WEIGHT_PIECES];
};

/* ---------------------------------------------------------------- one step */

/* Tokens of one sequence in this step: rows [first, first + n) of the flat batch. They stand at
 * positions kv_len - n .. kv_len - 1 and see every earlier position of their own sequence. */
struct span {
    uint32_t first, n;
    uint32_t kv_len;        /* tokens in the cache after this step */
    const uint32_t *blocks; /* block numbers covering [0, kv_len) */
    /* Tokens of the sequence that are decided already: all of its prompt, even while a chunk of it
     * is in the step; 0: kv_len. Only rotary scalings that depend on the length look at it. */
    uint32_t seq_len;
    uint32_t adapter; /* which low-rank update its tokens get, see lora(); 0: none */
    /* Cells of recurrent state: `state_in` holds that after position kv_len - n - 1, and is not
     * read where kv_len == n; that after kv_len - 1 is written to `state_out`. They may be the
     * same. */
    uint32_t state_in, state_out;
    /* Of caches of windows (kv_desc.windows): block numbers there, indexed as `blocks`. Read from
     * the block on that holds the first position seen; those before it are not read. */
    const uint32_t *windows;
    /* Block numbers of the pictures' rows that cross-attention layers read; NULL: none. Backends do
     * not look at it. */
    const uint32_t *shown;
};
/* Positions [begin, end) of a sequence that see each other: a picture, or a window of one. */
struct mutual {
    uint32_t begin, end; /* equal: none */
};
struct ragged {
    uint32_t n_tokens, n_spans, n_out;
    const uint32_t *ids;      /* [n_tokens] */
    const uint32_t *pos;      /* [n_tokens] absolute position */
    const uint32_t *slots;    /* [n_tokens] where K and V go: block * block_size + offset */
    const struct span *spans; /* [n_spans], ascending in `first`, covering all rows */
    const uint32_t *out_rows; /* [n_out] rows whose logits are wanted, ascending */
    /* [n_tokens] DRAW_KNOWN, or the row of a draw() into set `drawn_set` that chooses this token:
     * it need not have ended, and ids[i] means nothing. NULL: all are known. */
    const uint32_t *drawn;
    int drawn_set;
    const uint32_t *window_slots; /* [n_tokens] as `slots`, in caches of windows; NULL: none */
    /* Of pictures. NULL: the step has none.
     * [n_tokens] in host memory: the row that a token's embedding is, as it is; NULL: it is looked
     * up. Behind it lie spec.n_added further rows: the i-th is added to the stream behind layer i.
     */
    const float *const *given;
    const uint32_t (*axes)[3]; /* [n_tokens] positions t, h, w of rotations that have axes */
    /* [n_tokens] what a token belongs to, ascending within a span; see enum attn_mutual. All of its
     * keys are in the cache after this step. */
    const struct mutual *mutual;
    /* [n_tokens] rows of span.shown that a token sees, ascending within a span; equal: none. NULL:
     * the step shows none. Backends do not look at it. */
    const struct mutual *sees;
};

/* ---------------------------------------------------------------- op parameters */

enum norm_kind { NORM_RMS, NORM_LAYER };
struct norm {
    enum norm_kind kind;
    const float *w, *b; /* [n] device vectors from vector_load(); b may be NULL */
    float eps;
};

/* GELU: erf. GELU_TANH: the tanh approximation. RELU2: max(x, 0)^2. SWIGLU_CLAMPED exists gated
 * only, as a function of gate g and up u: with g at most 7 and u within -7 .. 7, g * sigmoid(1.702
 * g) * (u + 1) (gpt-oss, arXiv 2508.10925). */
enum act {
    ACT_SILU,
    ACT_GELU,
    ACT_GELU_TANH,
    ACT_RELU,
    ACT_RELU2,
    ACT_SWIGLU_CLAMPED,
    ACT_QUICK_GELU, /* x * sigmoid(1.702 x) (CLIP, arXiv 2103.00020) */
    ACT_N
};

/* How keys and values are kept. int8, fp8 (e4m3) and int4 have one fp32 scale for each token and
 * head. In int8 and fp8 it makes the greatest magnitude the type's greatest number. In int4 the
 * numbers are rotated first (hadamard() in the CPU backend), and the greatest becomes -8. */
enum kv_dtype { KV_F32, KV_F16, KV_BF16, KV_I8, KV_FP8, KV_I4, KV_N };
static inline bool kv_dtype_scaled(enum kv_dtype t) { return t >= KV_I8; }
/* Bytes of n numbers; of an even number of them in int4. */
static inline size_t kv_dtype_bytes(enum kv_dtype t, size_t n)
{
    return t == KV_F32 ? 4 * n : t == KV_I4 ? n / 2 : kv_dtype_scaled(t) ? n : 2 * n;
}
/* "float32", "float16", "bfloat16", "int8", "fp8", "int4" */
const char *kv_dtype_name(enum kv_dtype t);
/* The words of --kv-cache-dtype, "auto" first, NULL last; what the one at `choice` (> 0) means. */
extern const char *const kv_dtype_choices[];
enum kv_dtype kv_dtype_chosen(uint32_t choice);

/* What a cached layer keeps of each token: `n_heads` keys of k_dim numbers and values of v_dim. */
struct kv_layer {
    uint32_t n_heads, k_dim, v_dim;
    bool latent; /* a value is the first v_dim numbers of its key (one head): see latent_kv() */
};
/* Opaque: K and V of its layers, in meaning [n_layers][n_blocks][block_size][n_heads][dim], where
 * heads and dimensions are the layer's. One table of blocks serves all of them. Layers that see a
 * window may have a cache of their own, whose blocks are used again when no token sees them. */
struct kv_cache;
struct kv_desc {
    uint32_t n_layers, n_blocks, block_size;
    enum kv_dtype dtype;
    struct kv_layer each;          /* of every layer, where `layers` is NULL */
    const struct kv_layer *layers; /* [n_layers]; read by kv_new() and kv_block_bytes() only */
    bool windows;                  /* tokens lie where span.windows and ragged.window_slots say */
};
/* Where the cache keeps the tokens of a step. */
static inline const uint32_t *kv_slots(const struct kv_desc *k, const struct ragged *b)
{
    return k->windows ? b->window_slots : b->slots;
}
static inline const uint32_t *kv_blocks_of(const struct kv_desc *k, const struct span *s)
{
    return k->windows ? s->windows : s->blocks;
}
static inline const struct kv_layer *kv_layer(const struct kv_desc *k, uint32_t layer)
{
    return k->layers ? &k->layers[layer] : &k->each;
}

/* Split qkv rows into heads, optionally normalise q and k per head, rotate, write k and v to the
 * cache. `rope` is [n_tokens][rot_dim]: rot_dim/2 cosines, then rot_dim/2 sines, already scaled;
 * NULL: none. */
struct rope_kv {
    uint32_t n_heads, n_kv_heads, head_dim, rot_dim;
    bool interleaved;  /* pairs (2i, 2i+1) instead of (i, i + rot_dim/2) */
    const float *rope; /* device memory, valid for this step */
    /* Weights of the norms, or NULL: [head_dim], the same for every head; where `norm_by_head` or
     * with `squares` [n_heads * head_dim] and [n_kv_heads * head_dim]. */
    const float *q_norm, *k_norm;
    float norm_eps;
    enum norm_kind norm_kind; /* NORM_LAYER: not with `squares` */
    bool norm_by_head;
    bool norm_last; /* behind the rotation, of all of a head; NORM_RMS, without `squares` */
    /* NULL: each head is normalised by itself. Else q and k are normalised over all heads of all
     * ranks (OLMo 2, arXiv 2501.00656): the sums of row_squares(), over q_all and k_all elements.
     */
    const float *squares;
    uint32_t q_all, k_all;
    const float *v_norm;  /* [head_dim] every head of v is normalised by itself, or NULL */
    const float *q_scale; /* [T] what each token's q is multiplied with at last, or NULL */
    float clip;           /* q, k and v are first brought within -clip .. clip; 0: no */
};

enum { SQUARES = 4 }; /* elements of a row of row_squares() */

/* Latent attention (DeepSeek-V2, arXiv 2405.04434): all heads share one key of rank + rot_dim
 * numbers, whose first `rank` are the value too. Rotation as in struct rope_kv. */
struct latent_kv {
    uint32_t n_heads, rank, rot_dim;
    bool interleaved;
    const float *rope; /* or NULL */
    const float *norm; /* [rank] weights: the latent part of a key is normalised by RMS */
    float eps;
    const float *latent; /* [T, n_heads, rank] the queries' parts, not rotated and rotated */
    const float *turned; /* [T, n_heads, rot_dim] */
};

/* What ragged.mutual means for a layer: nothing; a token sees those of its picture as well; it sees
 * no others; it sees those of its picture that are after it as well, and before it only what the
 * window shows. */
enum attn_mutual { MUTUAL_NONE, MUTUAL_TOO, MUTUAL_ALONE, MUTUAL_AHEAD };

struct attn {
    uint32_t n_heads, n_kv_heads, head_dim;
    float scale;        /* multiplies q.k */
    float softcap;      /* s = softcap * tanh(s / softcap); 0: none */
    uint32_t window;    /* a token sees itself and the window - 1 tokens before it; 0: all */
    const float *alibi; /* [n_heads] slopes or NULL */
    /* [n_heads][2 * reach + 1] is added to q.k times scale, by the key's position less the query's,
     * which counts as reach beyond it; the first is that of -reach. NULL: none. With `both`. */
    const float *near;
    uint32_t reach;
    /* Disentangled attention: [T, 3 * n_heads, buckets]: q times a vector of each bucket of
     * distances, k times another, and what is not read; the sum of both times `scale` is added. The
     * bucket is at[query's position less the key's], which counts as reach beyond it; at[0] is that
     * of -reach. NULL: none. With `both`, and as many key-value heads as heads. */
    const float *apart;
    const uint32_t *at;
    uint32_t buckets;
    /* [n_heads] a logit of each head that has no value: exp(sink) joins the sum of a row's weights
     * (attention sinks, arXiv 2309.17453, learned as in arXiv 2508.10925). NULL: none. */
    const float *sinks;
    /* A token sees as many tokens after it as before it, up to kv_len (encoders): all of them are
     * in this step. Not with alibi. */
    bool both;
    /* The bias is the slope times the key's position, rounded to bfloat16, times `scale` (Falcon);
     * else the slope times the distance. */
    bool alibi_bf16;
    /* Not 0: a token sees, of what is not after it, the positions of its own run of so many, which
     * begin at multiples of it (Llama 4). */
    uint32_t chunk;
    enum attn_mutual mutual; /* not with alibi */
};

/* How a router's logits become scores. */
enum moe_score {
    MOE_SOFTMAX,
    MOE_SIGMOID,
    /* SparseMixer (arXiv 2409.12136): an expert's weight is its share of a softmax over those whose
     * logits are close to the best one that is left: within 2 * jitter of it, relatively. */
    MOE_SPARSEMIXER
};

/* Mixture of experts. The experts of a token are the top_k of score + select_bias, of equals the
 * lower number; they are summed in the order of their numbers. With groups (DeepSeek-V2, arXiv
 * 2405.04434; V3, 2412.19437) the experts are n_groups runs of equal length, and only those of the
 * top_groups best groups can be chosen. */
struct moe {
    struct weight *router;      /* [n_experts, hidden] */
    struct weight *const *up;   /* [n_experts] gate over up: [2 * ffn, hidden] */
    struct weight *const *down; /* [n_experts] [hidden, ffn] */
    /* Both NULL: another rank has the expert, and adds what comes of it. Only where the backend
     * says moe_parts. */
    uint32_t n_experts, top_k;
    bool renormalise; /* the scores of the chosen are scaled to sum to 1 */
    enum moe_score score;
    float scale;                   /* multiplies the weights at last */
    const float *select_bias;      /* [n_experts] for choosing only, or NULL */
    uint32_t n_groups, top_groups; /* 0 or 1 groups: none */
    bool group_pairs; /* a group's worth: the sum of its two best choices; else its best score */
    enum act act;
    float jitter;              /* of MOE_SPARSEMIXER */
    bool scale_input;          /* the weight multiplies the expert's input, not its result */
    const float *expert_scale; /* [n_experts] multiplies the weights, or NULL */
    const float *router_x;     /* the router's input where it is not x, or NULL */
    const float *router_bias;  /* [n_experts] or NULL */
    bool plain;                /* no gates: up is [ffn, hidden], an expert down(act(up(x))) */
    const float *up_bias;      /* [n_experts][2 * ffn], gate before up, or [ffn], or NULL */
    const float *down_bias;    /* [n_experts][hidden] or NULL */
};

/* ---------------------------------------------------------------- recurrent layers
 *
 * Sequences carry a state from token to token. A cell has the state of all recurrent layers of one
 * sequence: `stride` floats from alloc(). Each token is one exact step, so that no cut of a prompt
 * changes a bit. */

/* What one layer keeps in the cells: element i of cell c is base[c * stride + i]. The layout is the
 * backend's own. */
struct state_ref {
    float *base;
    size_t stride;
};

enum { CONV_MOST = 8 }; /* tokens that a convolution may look at */

/* y[t][c] = sum over j < width of w[j][c] * x[t - width + 1 + j][c], plus a bias, each channel by
 * itself and within its sequence; zeros stand before the first token. */
struct conv {
    uint32_t channels, width; /* 2 .. CONV_MOST */
    const float *w;           /* [width][channels] */
    const float *bias;        /* [channels] or NULL */
    bool silu;                /* y = silu(y) */
};

/* How a head's state S [key_dim][value_dim] goes on with a token's key k, query q and value v:
 *   DELTA  g = exp(-exp(a_log) softplus(step + dt_bias)), b = sigmoid(beta); k and q with a length
 *          of 1, q divided by the root of key_dim (Gated DeltaNet, arXiv 2412.06464):
 *          S = g S + k (b (v - g S^T k))^T
 *   SSM    d = softplus(step + dt_bias) within dt_min .. dt_max, g = exp(-exp(a_log) d) (Mamba-2,
 *          arXiv 2405.21060): S = g S + k (d v)^T
 * The result is S^T q, plus skip * v. */
enum recur_kind { RECUR_DELTA, RECUR_SSM };
struct recur {
    enum recur_kind kind;
    uint32_t heads, key_heads; /* heads / key_heads neighbours share a key and a query */
    uint32_t key_dim, value_dim;
    /* Rows of x, in which queries, keys and values begin at these elements. DELTA: what queries and
     * keys are afterwards is undefined. */
    float *x;
    uint32_t x_stride, q, k, v;
    const float *step, *beta; /* rows of [heads], `step_stride` elements apart; SSM: no beta */
    uint32_t step_stride;
    const float *a_log, *dt_bias; /* [heads] */
    const float *skip;            /* [heads] or NULL */
    float dt_min, dt_max;
    float *work; /* [rows][2 * heads] */
};

/* Rows multiplied by a function of other rows, and normalised, one after the other: Mamba-2 gates
 * first, Gated DeltaNet normalises first. */
enum gate_kind { GATE_NONE, GATE_PRODUCT, GATE_SIGMOID, GATE_SILU };
struct gate_norm {
    enum gate_kind kind;
    const float *gate; /* rows `stride` elements apart */
    uint32_t stride;
    /* RMS of each `group` elements, times w [n]. NULL: none. With `squares` the group is all of a
     * row and more on other ranks: its sum of squares is squares[row * SQUARES + column], of `all`
     * elements. */
    const float *w;
    uint32_t group;
    float eps;
    bool norm_first;
    const float *squares;
    uint32_t column, all;
};

/* A low-rank update of a matrix that is not merged into it (LoRA, arXiv 2106.09685), or of some of
 * its rows: y[first + i] += scale * sum over r of b[r][i] * (a[r] . x). The rows of a and b lie
 * anywhere in device memory (S-LoRA's paging, arXiv 2311.03285), each on a 64-byte boundary. */
struct lora {
    const void *const *a; /* [rank] rows as wide as x */
    const void *const *b; /* [rank] rows of n elements */
    enum dtype dtype;
    uint32_t rank, first, n;
    float scale;
};
enum { LORA_MAX_PARTS = 3, LORA_MAX_RANK = 512 };
/* Those of one adapter for one matrix (q, k and v have one each); n_parts 0: it leaves it alone. */
struct lora_set {
    struct lora part[LORA_MAX_PARTS];
    uint32_t n_parts;
};

/* ---------------------------------------------------------------- the table */

struct comm;
struct device;
struct device_options {
    int index;         /* which GPU; unused by the CPU */
    int threads;       /* CPU: worker threads, the caller included; 0: all allowed cores */
    uint64_t features; /* CPU: mask of instruction sets, for bisecting; ~0: all that are found */
    enum arith arith;  /* of products with plain 16-bit weights: EXACT or HALF */
};

struct backend_ops {
    const char *name;   /* "cpu" */
    bool makes_weights; /* weight_load() takes random parts, all or none, unless it quantises */
    bool moe_parts;     /* moe() may have some of the experts only: see struct moe */
    /* What it does with numbers in this format when products are to be in this arithmetic: NATIVE,
     * and weight_load() takes them as SOURCE_CODES or by --quantize; WIDEN, and they come as
     * SOURCE_NUMBERS. */
    enum take (*weight_takes)(const struct format *f, enum arith a);
    uint64_t step_bytes; /* memory for the rows of a step beyond which it is cheaper to walk through
                            the step in passes than to hold it at once; 0: it never is */
    struct device *(*open)(const struct device_options *o, struct err *e);
    void (*close)(struct device *d);
    const char *(*describe)(struct device *d); /* one line for the log: cores, instruction sets */
    int (*memory)(struct device *d, uint64_t *free_bytes, uint64_t *total_bytes, struct err *e);

    /* Memory. alloc() is zeroed and aligned to 64 bytes. */
    void *(*alloc)(struct device *d, size_t bytes, struct err *e);
    void (*free)(struct device *d, void *p);
    int (*upload)(struct device *d, void *dst, const void *src, size_t bytes, struct err *e);
    int (*download)(struct device *d, void *dst, const void *src, size_t bytes, struct err *e);

    /* Weights. vector_load() converts to fp32 and adds `plus` (0; 1 for Gemma's norms); free() it.
     */
    struct weight *(*weight_load)(struct device *d, const struct mat_desc *m, struct err *e);
    void (*weight_free)(struct device *d, struct weight *w);
    uint64_t (*weight_bytes)(const struct weight *w); /* that it takes on the device */
    float *(*vector_load)(struct device *d, const struct mat_part *v, float plus, struct err *e);

    /* Packed matrices as bytes. NULL, all three: this backend does not give its matrices out.
     * weight_layout() says in words how the device would pack: images are used by devices with the
     * same words only. weight_image() gives views that are valid as long as the matrix; false: this
     * one cannot be kept. weight_mapped() makes a matrix whose pieces stay where they are, each
     * aligned to WEIGHT_ALIGN: read-only memory of the caller's, for as long as the matrix is used.
     * NULL: ERR_VALIDATION, the image is none of this layout; ERR_SYSTEM. */
    void (*weight_layout)(const struct device *d, char *out, size_t max);
    bool (*weight_image)(const struct weight *w, struct weight_image *out);
    struct weight *(*weight_mapped)(struct device *d, const struct weight_image *in, struct err *e);

    struct kv_cache *(*kv_new)(struct device *d, const struct kv_desc *k, struct err *e);
    void (*kv_free)(struct device *d, struct kv_cache *kv);
    uint64_t (*kv_block_bytes)(const struct kv_desc *k); /* all layers, K and V, one block */
    /* Block dst[i] = block src[i] for n pairs, all layers (copy-on-write). */
    int (*kv_copy)(struct device *d, struct kv_cache *kv, const uint32_t *src, const uint32_t *dst,
                   uint32_t n, struct err *e);

    /* The host's memory for blocks that are swapped out: page-locked where that is faster; not
     * touched before it is used. */
    void *(*host_alloc)(struct device *d, size_t bytes, struct err *e);
    void (*host_free)(struct device *d, void *p, size_t bytes);
    /* Whole blocks, all layers, to and from host + slots[i] * kv_block_bytes(), whose layout is the
     * backend's own. In order with steps and with each other; they may enqueue and return. NULL:
     * this backend does not swap. */
    int (*kv_read)(struct device *d, struct kv_cache *kv, const uint32_t *blocks, void *host,
                   const uint32_t *slots, uint32_t n, struct err *e);
    int (*kv_write)(struct device *d, struct kv_cache *kv, const uint32_t *blocks, const void *host,
                    const uint32_t *slots, uint32_t n, struct err *e);

    /* One step; T below is b->n_tokens. `b` stays valid until step_end(). */
    int (*step_begin)(struct device *d, const struct ragged *b, struct err *e);
    int (*step_end)(struct device *d, struct err *e);
    /* As step_begin(), for a step of which nothing is computed: its operations only take the memory
     * that they would need for it and for smaller steps. NULL: there is none beside alloc(). */
    int (*step_rehearse)(struct device *d, const struct ragged *b, struct err *e);

    /* y[t] = scale * W[ids[t] - first_row]; zero where the id is outside W's rows (vocabulary
     * slice). Of a quantised W: the numbers that its product works with. */
    void (*embed)(struct device *d, float *y, const struct weight *w, uint32_t first_row,
                  float scale);
    /* Row t of y, of n elements, becomes (or, with `add`, grows by) the next row of x, for each
     * token t that has a row given. NULL: none. */
    void (*give_rows)(struct device *d, float *y, const float *x, uint32_t n, bool add);
    /* y[t] += W[pos[t] + offset] (learned positions). */
    void (*embed_pos)(struct device *d, float *y, const struct weight *w, uint32_t offset);
    /* y = norm(x), rows of n elements; y may be x. */
    void (*norm)(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
                 const struct norm *p);
    /* x += scale * r, then y = norm(x) unless p is NULL. What r holds afterwards is undefined: a
     * backend may do the first as part of the product that r is, and never store r. */
    void (*add_norm)(struct device *d, float *y, float *x, const float *r, float scale,
                     uint32_t rows, uint32_t n, const struct norm *p);
    /* y[rows, W.rows] = x[rows, W.cols] W^T + bias ([W.rows] or NULL); y and x do not overlap. */
    void (*linear)(struct device *d, float *y, const float *x, uint32_t rows,
                   const struct weight *w, const float *bias);
    /* y[t] = {sum of x[t][0 .. a)^2, sum of x[t][a .. a + b)^2, 0, 0}; rows of x are `stride`
     * elements apart. NULL: none. */
    void (*row_squares)(struct device *d, float *y, const float *x, uint32_t stride, uint32_t rows,
                        uint32_t a, uint32_t b);
    /* x[t][i] *= sigmoid(gate[t]). NULL: none. */
    void (*gate_rows)(struct device *d, float *x, uint32_t rows, uint32_t n, const float *gate);
    /* y[t][i] = x[t][i], at least low[i] and at most high[i]; y may be x. NULL: none. */
    void (*clip)(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
                 const float *low, const float *high);
    /* What linear() of the same y and x lacks: y[T, y_width] += the update of each token's adapter,
     * of[span.adapter]; of[0] is empty. NULL: this backend has no adapters. */
    void (*lora)(struct device *d, float *y, uint32_t y_width, const float *x, uint32_t x_width,
                 const struct lora_set *of);
    /* qkv: [T, (n_heads + 2 n_kv_heads) * head_dim]; q ends up normalised and rotated in place. */
    void (*rope_kv)(struct device *d, float *qkv, struct kv_cache *kv, uint32_t layer,
                    const struct rope_kv *p);
    /* q[T, n_heads, rank + rot_dim]: `latent` beside the rotated `turned`. The key of a token, its
     * row of kv [T, rank + rot_dim] with the first `rank` normalised and the rest rotated, goes
     * into the cache, whose layer is latent. NULL: none. */
    void (*latent_kv)(struct device *d, float *q, const float *kv, struct kv_cache *cache,
                      uint32_t layer, const struct latent_kv *p);
    /* Each head by its own matrix: y[t][h] = W_h x[t][h], where x is [rows, n, W.cols] and y [rows,
     * n, W.rows]; the n matrices are alike, in DT_F32 to DT_BF16, not quantised. NULL: none. */
    void (*linear_heads)(struct device *d, float *y, const float *x, uint32_t rows,
                         struct weight *const *w, uint32_t n);
    /* o: [T, n_heads * the layer's v_dim]; q: rows of q_stride elements, the heads first. */
    void (*attention)(struct device *d, float *o, const float *q, uint32_t q_stride,
                      const struct kv_cache *kv, uint32_t layer, const struct attn *p);
    /* Recurrent layers; NULL: this backend has none.
     * y: [T, channels]; rows of x are x_stride elements apart; y and x do not overlap. */
    void (*conv)(struct device *d, float *y, const float *x, uint32_t x_stride,
                 const struct state_ref *s, const struct conv *p);
    uint64_t (*conv_floats)(const struct conv *p); /* of a cell that it takes */
    /* o: [T, heads * value_dim] */
    void (*recur)(struct device *d, float *o, const struct state_ref *s, const struct recur *p);
    uint64_t (*recur_floats)(const struct recur *p);
    /* x: rows of n elements, x_stride apart, in place; a `w` wants n == x_stride. */
    void (*gate_norm)(struct device *d, float *x, uint32_t x_stride, uint32_t rows, uint32_t n,
                      const struct gate_norm *p);
    /* Cell dst[i] = cell src[i] for n pairs, in this order and in order with steps. */
    int (*state_copy)(struct device *d, const struct state_ref *s, const uint32_t *src,
                      const uint32_t *dst, uint32_t n, struct err *e);
    /* y[t, i] = act(x[t, i]) * x[t, n + i], or what a gated-only act says; x: [rows, 2n], y: [rows,
     * n]. What x holds afterwards is undefined: a backend may do this as part of the product that x
     * is, and never store x. */
    void (*act_mul)(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
                    enum act act);
    void (*act)(struct device *d, float *x, uint32_t rows, uint32_t n, enum act act); /* in place */
    /* x[t][i] = act(x[t][i]) * m[t][i], rows of n elements. NULL: none. */
    void (*act_by)(struct device *d, float *x, const float *m, uint32_t rows, uint32_t n,
                   enum act act);
    void (*moe)(struct device *d, float *y, const float *x, uint32_t rows, const struct moe *p);
    /* y[i] = x[out_rows[i]], rows of n elements: only these go through the last norm and the head.
     */
    void (*gather_out)(struct device *d, float *y, const float *x, uint32_t n);
    /* x = cap * tanh(x * scale / cap) where cap > 0, else x * scale. */
    void (*logit_scale)(struct device *d, float *x, uint32_t rows, uint32_t n, float scale,
                        float cap);

    /* Choose a token from each of n rows of logits, between the operations of a step and
     * step_end(), which then returns without waiting. Results go to one of two sets, whose earlier
     * results are forgotten. drawn() waits for the last draw() into a set, and for nothing that was
     * enqueued after it; *out is valid until the next draw() into that set. NULL: the host chooses.
     */
    int (*draw)(struct device *d, const struct logits *x, const struct draw *v, uint32_t n, int set,
                struct err *e);
    int (*drawn)(struct device *d, int set, struct draw_results *out, struct err *e);

    /* The host's threads, for work on rows that are in host memory already: between steps, fn(arg,
     * thread, begin, end) over ranges that cover [0, n), thread < host_threads(). NULL: the caller
     * works alone. */
    int (*host_threads)(struct device *d);
    void (*host_run)(struct device *d, void (*fn)(void *arg, int thread, size_t begin, size_t end),
                     void *arg, size_t n);

    /* From now on fn(arg, w, x, rows) before each product of linear() and of moe() with `w`, whose
     * inputs are x [rows, W.cols] in host memory, on the thread of the step; fn NULL: no more.
     * NULL: activations of this device cannot be looked at. */
    void (*observe)(struct device *d,
                    void (*fn)(void *arg, const struct weight *w, const float *x, uint32_t rows),
                    void *arg);

    /* Collectives on this device's memory for the ranks of `host`, whose collectives are on host
     * memory; close it before the device and before `host`. NULL: this device's memory is the
     * host's. */
    struct comm *(*comm_open)(struct device *d, struct comm *host, struct err *e);
};

extern const struct backend_ops backend_cpu;

/* NULL and ERR_VALIDATION for an unknown name. "auto": a GPU if there is one, else the CPU. */
const struct backend_ops *backend_find(const char *name, struct err *e);
#endif
