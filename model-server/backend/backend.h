/* backend.h - the interface between the layers of a model and a device.
 *
 * A backend is a folder backend/<name>/ that fills `struct backend_ops`. Operations are ragged
 * (one flat list of tokens, see struct ragged), fused where every device gains, and explicit
 * about shapes. They may enqueue and return; download(), drawn() and step_end() wait. Activations
 * are fp32 rows on the CPU and backend-specific elsewhere: the model uses only pointers from
 * alloc() and element counts.
 *
 * Invariance: every op computes a row of its result only from that row's inputs. The order depends
 * only on the shapes of the weights and on absolute positions. So batch size, chunking and other
 * rows never change a bit of a result.
 *
 * The plain C reference of each op in backend/cpu/ defines its meaning. */
#ifndef MODEL_SERVER_BACKEND_BACKEND_H
#define MODEL_SERVER_BACKEND_BACKEND_H
#include "common/err.h"
#include "model-server/backend/draw.h"
#include "model-server/backend/entries.h"
#include "model-server/backend/kv.h"
#include "model-server/backend/matrix.h"
#include "model-server/backend/ngrams.h"
#include "model-server/backend/ragged.h"
#include "model-server/backend/recur.h"
#include "model-server/backend/selection.h"
#include "model-server/backend/streams.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---------------------------------------------------------------- op parameters */

enum norm_kind { NORM_RMS, NORM_LAYER };
struct norm {
    enum norm_kind kind;
    const float *w, *b; /* [n] device vectors from vector_load(); b may be NULL */
    float eps;
};

/* GELU: erf. GELU_TANH: the tanh approximation. RELU2: max(x, 0)^2. SWIGLU_CLAMPED only exists
 * gated, as a function of gate g and up u: with g at most 7 and u within -7 .. 7, g *
 * sigmoid(1.702 g) * (u + 1) (gpt-oss, arXiv 2508.10925). SILU_CLAMPED likewise: with g at most 10
 * and u within -10 .. 10, g * sigmoid(g) * u. SILU_CAPPED (Step 3.5): the same, but g * sigmoid(g)
 * is at most the limit, not g. act_limited() gives these another limit (act.h). */
enum act {
    ACT_SILU,
    ACT_GELU,
    ACT_GELU_TANH,
    ACT_RELU,
    ACT_RELU2,
    ACT_SWIGLU_CLAMPED,
    ACT_QUICK_GELU, /* x * sigmoid(1.702 x) (CLIP, arXiv 2103.00020) */
    ACT_SILU_CLAMPED,
    ACT_SILU_CAPPED,
    ACT_SIGMOID,
    /* Only gated: sigmoid(g) * 4 tanh(g / 4) * 25 tanh(u / 25) (Inkling 2) */
    ACT_SILU_SOFT,
    ACT_N,
    ACT_LIMIT = 0x7fffff00 /* the bits of a limit, as those of a float; 0: the kind's own */
};

/* Splits qkv rows into heads, optionally normalises q and k per head, rotates, and writes k and v
 * to the cache. `rope` is [n_tokens][rot_dim]: rot_dim/2 cosines, then rot_dim/2 sines, already
 * scaled; NULL: none. */
struct rope_kv {
    uint32_t n_heads, n_kv_heads, head_dim, rot_dim;
    bool interleaved;  /* pairs (2i, 2i+1) instead of (i, i + rot_dim/2) */
    const float *rope; /* device memory, valid for this step */
    /* Weights of the norms, or NULL: [head_dim], the same for every head. With `norm_by_head` or
     * `squares`: [n_heads * head_dim] and [n_kv_heads * head_dim]. */
    const float *q_norm, *k_norm;
    float norm_eps;
    enum norm_kind norm_kind; /* NORM_LAYER: not with `squares` */
    bool norm_by_head;
    bool norm_last; /* normalise after the rotation, whole heads; NORM_RMS, without `squares` */
    /* NULL: each head is normalised separately. Else q and k are normalised over all heads of all
     * ranks (OLMo 2, arXiv 2501.00656): the sums of row_squares(), over q_all and k_all
     * elements. */
    const float *squares;
    uint32_t q_all, k_all;
    const float *v_norm;  /* [v_dim] every head of v is normalised separately, or NULL */
    const float *q_scale; /* [T] final factor of each token's q, or NULL */
    float clip;           /* q, k and v are first clipped to -clip .. clip; 0: no */
    /* Added to what q_norm and k_norm made of each head, or NULL; as long as those. Not with
     * `norm_last` and `squares`. */
    const float *q_norm_bias, *k_norm_bias;
};

enum { LINEAR_HEADS_COLS = 13312 }; /* of linear_heads(): the CPU packs rows of x in scratch */
enum { SQUARES = 4 };               /* elements of a row of row_squares() and of row_moments() */

/* Latent attention (DeepSeek-V2, arXiv 2405.04434): all heads share one key of rank + rot_dim
 * numbers. Its first `rank` numbers are also the value. Rotation as in struct rope_kv. */
struct latent_kv {
    uint32_t n_heads, rank, rot_dim;
    bool interleaved;
    const float *rope;      /* or NULL */
    const float *norm;      /* [rank] weights: the latent part of a key is RMS-normalised */
    const float *turn_norm; /* [rot_dim] the same of the rotated part, before it turns; or NULL */
    float eps;
    const float *latent;  /* [T, n_heads, rank] latent part of the queries, not rotated */
    const float *turned;  /* [T, n_heads, rot_dim] */
    const float *q_scale; /* [T] final factor of each token's queries, or NULL */
};

/* How a layer uses ragged.mutual. NONE: not at all. TOO: a token also attends to its range.
 * ALONE: only to its range. AHEAD: also to later tokens of its range, and to earlier tokens only
 * within the window. */
enum attn_mutual { MUTUAL_NONE, MUTUAL_TOO, MUTUAL_ALONE, MUTUAL_AHEAD };

struct attn {
    uint32_t n_heads, n_kv_heads, head_dim;
    float scale;        /* multiplies q.k */
    float softcap;      /* s = softcap * tanh(s / softcap); 0: none */
    uint32_t window;    /* a token attends to itself and the window - 1 tokens before it; 0: all */
    const float *alibi; /* [n_heads] slopes or NULL */
    /* Relative position bias [n_heads][2 * reach + 1], added to q.k times scale. The index is the
     * key's position minus the query's, clamped to -reach .. reach; the first entry is that of
     * -reach. NULL: none. */
    const float *near;
    uint32_t reach;
    /* Disentangled attention [T, 3 * n_heads, buckets]: q times a vector per bucket of distances,
     * k times another one, and an unused part. The sum of both times `scale` is added. The bucket
     * is at[query's position minus the key's], clamped to -reach .. reach; at[0] is that of
     * -reach. NULL: none. With `both`, and as many key-value heads as heads, but with
     * apart_bias. */
    const float *apart;
    const uint32_t *at;
    uint32_t buckets;
    /* Not NULL: `apart` is [T, n_heads, buckets], q times a vector per bucket alone, and this
     * [n_heads, buckets] is added to it (Transformer-XL, arXiv 1901.02860). The last bucket is of
     * no distance: with `kinds` [T] it is added where those of query and key differ (XLNet, arXiv
     * 1906.08237). */
    const float *apart_bias;
    const uint32_t *kinds;
    /* [n_heads] a logit per head without a value: exp(sink) is added to the sum of a row's
     * weights (attention sinks, arXiv 2309.17453, learned as in arXiv 2508.10925). With
     * sinks_by_token: [T, n_heads]. NULL: none. */
    const float *sinks;
    bool sinks_by_token;
    /* Bidirectional (encoders): with a window, a token attends to as many tokens after it as
     * before it, and to `ahead` more, up to kv_len. All of them are in this step. Not with
     * alibi. */
    bool both;
    uint32_t ahead;
    /* True: the bias is the slope times the key's position, rounded to bfloat16, times `scale`
     * (Falcon). False: the slope times the distance. */
    bool alibi_bf16;
    /* Chunked attention (Llama 4): a token attends only to earlier positions of its own chunk of
     * this size. Chunks begin at multiples of it. 0: none. */
    uint32_t chunk;
    enum attn_mutual mutual; /* not with alibi */
    /* [T, n_top] of select_keys(): the positions to which a token attends, ascending. A token with
     * at most n_top positions attends to all of them, and its row is not read. NULL: all attend to
     * all. Not with fields that depend on distances, windows, chunks, `both` and `mutual`.
     * With `top_block` it is [T, n_kv_heads, n_top]: blocks of this many positions to which the
     * heads of a key-value head attend, of a token with at most n_top blocks to all. With
     * `top_tail` it is [T, n_top], for all heads, and the last block is the one that is not
     * complete, if there is one: struct select_keys.pooled. */
    const uint32_t *top;
    uint32_t n_top, top_block;
    bool top_tail;
    /* Not 0: kv_layer.every. In the same softmax as the keys of its window a token attends to the
     * complete entries. With `top` it attends to the selected ones. If these are more than n_top,
     * top[T, n_top] has their numbers. Only with window, sinks and one key-value head. */
    uint32_t entries;
    /* [T, n_heads, ATTN_SUMS] the softmax of each row, for merge_attention(): its largest score and
     * the sum of its weights, in the backend's own units. NULL: they are not stored. Not with top,
     * entries and sinks. */
    float *sums;
};
enum { ATTN_SUMS = 2 };
/* A token with more positions attends to some. */
static inline uint32_t attn_whole(uint32_t n_top, uint32_t block, bool tail)
{
    return n_top * (block ? block : 1) - (tail ? 1 : 0);
}
/* Positions to which a token at position `at` then attends. */
static inline uint32_t attn_selected(uint32_t n_top, uint32_t block, bool tail, uint32_t at)
{
    return !block ? n_top
           : tail ? (n_top - 1) * block + (at + 1) % block
                  : select_block_positions(n_top, block, at);
}

/* How the router's logits become scores. */
enum moe_score {
    MOE_SOFTMAX,
    MOE_SIGMOID,
    MOE_SQRT_SOFTPLUS, /* the root of softplus */
    /* SparseMixer (arXiv 2409.12136): an expert's weight is its probability in a softmax over the
     * logits close to the best remaining one, within 2 * jitter of it, relatively. */
    MOE_SPARSEMIXER
};

/* Statistical top-k (Gemma 3n): moments[t] = row_moments() of all `of` elements of row t, summed
 * over ranks. */
struct sparsify {
    const float *moments;
    uint32_t of;
    float deviations;
};

/* Mixture of experts. The experts of a token are the top_k of score + select_bias; ties go to the
 * lower number. They are summed in the order of their numbers. With groups (DeepSeek-V2, arXiv
 * 2405.04434; V3, 2412.19437) the experts form n_groups ranges of equal length. Only experts of
 * the top_groups best groups can be selected. */
struct moe {
    struct weight *router; /* [n_experts + n_zero, hidden] */
    /* The experts' input and result may be narrower than the router's input, with router_x. */
    struct weight *const *up;   /* [n_experts] gate over up: [2 * ffn, hidden] */
    struct weight *const *down; /* [n_experts] [hidden, ffn] */
    /* Both NULL: the expert is on another rank, which adds its result. Those of a rank are
     * consecutive. */
    uint32_t n_experts, top_k;
    /* Zero-computation experts (LongCat-Flash, arXiv 2509.01322): the router has as many more rows,
     * and the result of such an expert is its input. Without adds_zero another rank adds it. Not
     * with biases. */
    uint32_t n_zero;
    bool adds_zero;
    bool renormalise; /* the scores of the selected experts are scaled to a sum of 1 */
    enum moe_score score;
    float scale;                   /* final factor of the weights */
    const float *select_bias;      /* [n_experts + n_zero] added for the selection only, or NULL */
    bool select_logits;            /* experts are chosen by their logits, not by their scores */
    uint32_t n_groups, top_groups; /* 0 or 1 groups: none */
    bool group_pairs; /* score of a group: the sum of its two best experts; else its best expert */
    enum act act;
    float jitter;              /* of MOE_SPARSEMIXER */
    bool scale_input;          /* the weight multiplies the expert's input, not its result */
    const float *expert_scale; /* [n_experts] multiplies the weights, or NULL */
    const float *router_x;     /* the router's input if it is not x, or NULL */
    /* [ids][top_k] the different experts of each id, or NULL: they are chosen by the token's id
     * instead of their scores, which only weigh them. Row t is token t of the step. */
    const uint32_t *by_id;
    uint32_t n_ids;           /* larger ids have the experts of id 0 */
    const float *router_bias; /* [n_experts] or NULL */
    bool plain;               /* no gates: up is [ffn, hidden], an expert down(act(up(x))) */
    const float *up_bias;     /* [n_experts][2 * ffn], gate before up, or [ffn], or NULL */
    const float *down_bias;   /* [n_experts][hidden] or NULL */
    const float *sum_bias;    /* [hidden] added once to the sum of the results, or NULL */
    /* What becomes of an expert's result before its weight multiplies it, or NULL: rows of
     * gate_norm() that are not over ranks. The experts of this rank are whole then. */
    const struct gate_norm *result_norm;
};

/* A low-rank update of a matrix, or of some of its rows, that is not merged into it (LoRA, arXiv
 * 2106.09685): y[first + i] += scale * sum over r of b[r][i] * (a[r] . x). The rows of a and b
 * may be anywhere in device memory (S-LoRA's paging, arXiv 2311.03285), each on a 64-byte
 * boundary. */
struct lora {
    const void *const *a; /* [rank] rows as wide as x */
    const void *const *b; /* [rank] rows of n elements */
    enum dtype dtype;
    uint32_t rank, first, n;
    float scale;
};
enum { LORA_MAX_PARTS = 4, LORA_MAX_RANK = 512 };
/* The updates of one adapter for one matrix (q, k and v have one each); n_parts 0: none. */
struct lora_set {
    struct lora part[LORA_MAX_PARTS];
    uint32_t n_parts;
};

/* ---------------------------------------------------------------- the table */

struct comm;
struct device;
struct device_options {
    int index;   /* which GPU; unused by the CPU */
    int threads; /* CPU: worker threads including the caller; 0: all allowed cores */
    /* CPU: mask of instruction sets, for bisecting; ~0: all that are supported */
    uint64_t features;
    enum arith arith; /* arithmetic of products with plain 16-bit weights: EXACT or HALF */
};

/* Operands of backend_ops.mlp: up [n, hidden], or with `gated` [2 n, hidden], and down [hidden, n].
 * Biases may be NULL. */
struct mlp {
    const struct weight *up, *down;
    const float *up_bias, *down_bias;
    enum act act;
    bool gated;
};

/* See backend_ops.profile. */
typedef void profile_fn(void *arg, const char *what, uint64_t bytes, double us);

struct backend_ops {
    const char *name;   /* "cpu" */
    bool makes_weights; /* weight_load() generates random parts, all or none, unless it quantises */
    /* Support of a format in an arithmetic. NATIVE: weight_load() accepts it as SOURCE_CODES or
     * by --quantize. WIDEN: it needs SOURCE_NUMBERS. */
    enum take (*weight_takes)(const struct format *f, enum arith a);
    bool wide_values;        /* a head's values may be wider than its keys */
    bool rounds_activations; /* to 8 bits for products in ARITH_INT8; false: products dequantise */
    uint64_t step_bytes; /* above this size of a step's rows, several passes are cheaper than one;
                            0: never */
    struct device *(*open)(const struct device_options *o, struct err *e);
    void (*close)(struct device *d);
    const char *(*describe)(struct device *d); /* one line for the log: cores, instruction sets */
    int (*memory)(struct device *d, uint64_t *free_bytes, uint64_t *total_bytes, struct err *e);

    /* Rows whose product takes several times as long as reading its weights: more rows may be
     * computed in tiles of so many. NULL: it gains from any number of rows. */
    uint32_t (*tile_rows)(const struct device *d);
    /* Beside products with weights of this type keys and values may be rounded as those are. Then
     * heads are best filled up to this size, at least head_dim, and rounded to *kv. 0: rounding is
     * not faster, and *kv is not set. NULL: as 0. */
    uint32_t (*head_size)(const struct device *d, enum dtype weights, uint32_t head_dim,
                          enum kv_dtype *kv);

    /* Memory. alloc() is zeroed and aligned to 64 bytes. Copies are ordered with the operations of
     * a step; all ranks make those within a step alike. */
    void *(*alloc)(struct device *d, size_t bytes, struct err *e);
    void (*free)(struct device *d, void *p);
    int (*upload)(struct device *d, void *dst, const void *src, size_t bytes, struct err *e);
    int (*download)(struct device *d, void *dst, const void *src, size_t bytes, struct err *e);

    /* Weights. vector_load() converts to fp32 and adds `plus` (0; 1 for Gemma's norms); free() it.
     */
    struct weight *(*weight_load)(struct device *d, const struct mat_desc *m, struct err *e);
    void (*weight_free)(struct device *d, struct weight *w);
    uint64_t (*weight_bytes)(const struct weight *w); /* bytes on the device */
    float *(*vector_load)(struct device *d, const struct mat_part *v, float plus, struct err *e);

    /* Packed matrices as bytes; all three NULL: not supported. weight_layout() describes how the
     * device would pack: images are only valid for devices with the same description.
     * weight_image() returns views that are valid as long as the matrix; false: this one is not
     * supported. weight_mapped() creates a matrix whose pieces stay in place, each aligned to
     * WEIGHT_ALIGN. They are read-only memory of the caller and must outlive the matrix. NULL:
     * ERR_VALIDATION, the image does not have this layout; ERR_SYSTEM. */
    void (*weight_layout)(const struct device *d, char *out, size_t max);
    bool (*weight_image)(const struct weight *w, struct weight_image *out);
    struct weight *(*weight_mapped)(struct device *d, const struct weight_image *in, struct err *e);

    struct kv_cache *(*kv_new)(struct device *d, const struct kv_desc *k, struct err *e);
    void (*kv_free)(struct device *d, struct kv_cache *kv);
    uint64_t (*kv_block_bytes)(const struct kv_desc *k); /* all layers, K and V, one block */
    /* Copies block src[i] to dst[i] for n pairs, all layers (copy-on-write). */
    int (*kv_copy)(struct device *d, struct kv_cache *kv, const uint32_t *src, const uint32_t *dst,
                   uint32_t n, struct err *e);

    /* Host memory for swapped blocks: page-locked if that is faster; not touched before it is
     * used. */
    void *(*host_alloc)(struct device *d, size_t bytes, struct err *e);
    void (*host_free)(struct device *d, void *p, size_t bytes);
    /* Copies whole blocks, all layers, to and from host + slots[i] * kv_block_bytes(). Their
     * layout is the backend's own. Ordered with steps and with each other; may enqueue and
     * return. NULL: swapping is not supported. */
    int (*kv_read)(struct device *d, struct kv_cache *kv, const uint32_t *blocks, void *host,
                   const uint32_t *slots, uint32_t n, struct err *e);
    int (*kv_write)(struct device *d, struct kv_cache *kv, const uint32_t *blocks, const void *host,
                    const uint32_t *slots, uint32_t n, struct err *e);

    /* One step; T below is b->n_tokens. `b` stays valid until step_end(). */
    int (*step_begin)(struct device *d, const struct ragged *b, struct err *e);
    int (*step_end)(struct device *d, struct err *e);
    /* As step_begin(), for a step that is not computed: its operations only allocate the memory
     * that they would need for it and for smaller steps. NULL: there is none besides alloc(). */
    int (*step_rehearse)(struct device *d, const struct ragged *b, struct err *e);
    /* After an error: true if it stays, so that every later call of this process fails and another
     * process may succeed. NULL: there are no such errors. */
    bool (*lost)(struct device *d);

    /* y[t] = scale * W[ids[t] - first_row]; zero if the id is outside W's rows (vocabulary
     * slice). With a quantised W: the values that its product uses. */
    void (*embed)(struct device *d, float *y, const struct weight *w, uint32_t first_row,
                  float scale);
    /* Replaces row t of y (or with `add` increases it) by the next row of x, of n elements, for
     * each token t with a given row. NULL: not supported. */
    void (*give_rows)(struct device *d, float *y, const float *x, uint32_t n, bool add);
    /* y[t] = the row of each table's n-gram that ends at token t, side by side: [T, p->n * W.cols].
     * NULL: not supported. */
    void (*embed_ngrams)(struct device *d, float *y, const struct weight *w,
                         const struct state_ref *s, const struct ngrams *p);
    /* y[t] += W[pos[t] + offset] (learned positions). */
    void (*embed_pos)(struct device *d, float *y, const struct weight *w, uint32_t offset);
    /* y = norm(x), rows of n elements; y may be x. */
    void (*norm)(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
                 const struct norm *p);
    /* x += scale * r, then y = norm(x) unless p is NULL. r is undefined afterwards if a product
     * computed it: a backend may fuse the addition into that product, and never store r. */
    void (*add_norm)(struct device *d, float *y, float *x, const float *r, float scale,
                     uint32_t rows, uint32_t n, const struct norm *p);
    /* y[rows, W.rows] = x[rows, W.cols] W^T + bias ([W.rows] or NULL); y and x do not overlap. */
    void (*linear)(struct device *d, float *y, const float *x, uint32_t rows,
                   const struct weight *w, const float *bias);
    /* y[t] = {sum of x[t][0 .. a)^2, sum of x[t][a .. a + b)^2, 0, 0}; rows of x are `stride`
     * elements apart. NULL: not supported. */
    void (*row_squares)(struct device *d, float *y, const float *x, uint32_t stride, uint32_t rows,
                        uint32_t a, uint32_t b);
    /* y[t] = {sum of x[t][0 .. n), sum of their squares, 0, 0}; rows of x are `stride` elements
     * apart. NULL: not supported. */
    void (*row_moments)(struct device *d, float *y, const float *x, uint32_t stride, uint32_t rows,
                        uint32_t n);
    /* x[t][i] = max(x[t][i] - (mean + p->deviations * standard deviation), 0) of n elements of
     * each row, in place. NULL: not supported. */
    void (*sparsify)(struct device *d, float *x, uint32_t stride, uint32_t rows, uint32_t n,
                     const struct sparsify *p);
    /* x[t][i] *= the sigmoid, or with `softplus` the softplus, of gate[t]. NULL: not supported. */
    void (*gate_rows)(struct device *d, float *x, uint32_t rows, uint32_t n, const float *gate,
                      bool softplus);
    /* Multiplies each head of x[rows, heads, n] by slope[head] * by[row] + offset[head], in place.
     * NULL: not supported. */
    void (*scale_heads)(struct device *d, float *x, uint32_t rows, uint32_t heads, uint32_t n,
                        const float *by, const float *slope, const float *offset);
    /* y[t][i] = x[t][i] clipped to low[i] .. high[i]; y may be x. NULL: not supported. */
    void (*clip)(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
                 const float *low, const float *high);
    /* The adapters' part of linear() with the same y and x: y[T, y_width] += the update of each
     * token's adapter, of[span.adapter]; of[0] is empty. NULL: adapters are not supported. */
    void (*lora)(struct device *d, float *y, uint32_t y_width, const float *x, uint32_t x_width,
                 const struct lora_set *of);
    /* qkv: [T, (n_heads + n_kv_heads) * head_dim + n_kv_heads * the layer's v_dim]; q is
     * normalised and rotated in place. */
    void (*rope_kv)(struct device *d, float *qkv, struct kv_cache *kv, uint32_t layer,
                    const struct rope_kv *p);
    /* q[T, n_heads, rank + rot_dim]: `latent` and the rotated `turned`. A token's key is its row
     * of kv [T, rank + rot_dim] with the first `rank` normalised and the rest rotated. It is
     * written to the cache, whose layer is latent. kv NULL: the keys are those of another layer,
     * and only q is made. NULL: not supported. */
    void (*latent_kv)(struct device *d, float *q, const float *kv, struct kv_cache *cache,
                      uint32_t layer, const struct latent_kv *p);
    /* Rotates q [T, n_heads, dim] in place and each row of k [T, dim], the index key of a token,
     * which is then written to the cache. Then selects: top[T, p->top], ascending; equal scores:
     * the lower position. Scores that are not finite are ordered as their bits. Rows of tokens
     * with at most p->top positions are not written. */
    void (*select_keys)(struct device *d, uint32_t *top, float *q, float *k, struct kv_cache *cache,
                        uint32_t layer, const struct select_keys *p);
    /* k[t] [T, dim] = the key of a pool, of its last token; those of other tokens are 0. NULL: not
     * supported. */
    void (*pool_keys)(struct device *d, float *k, const struct state_ref *s,
                      const struct pool_keys *p);
    /* Rotates parts of heads x[T, n_heads, dim] in place. NULL: not supported. */
    void (*turn)(struct device *d, float *x, const struct turn *p);
    /* Writes x[T, k_dim] to a latent layer with k_dim == v_dim: the keys of the tokens, which are
     * also their values, or with `entries` the entries whose last positions they are; rows of other
     * tokens are not read then. NULL: not supported. */
    void (*keep)(struct device *d, struct kv_cache *cache, uint32_t layer, const float *x,
                 bool entries);
    /* Multiplies each head with its own matrix: y[t][h] = W_h x[t][h], where x is [rows, n,
     * W.cols] and y [rows, n, W.rows]. The n matrices have equal shapes, at most LINEAR_HEADS_COLS
     * columns, in DT_F32 to DT_BF16, not quantised. NULL: not supported. */
    void (*linear_heads)(struct device *d, float *y, const float *x, uint32_t rows,
                         struct weight *const *w, uint32_t n);
    /* o: [T, n_heads * the layer's v_dim]; q: rows of q_stride elements, heads first. */
    void (*attention)(struct device *d, float *o, const float *q, uint32_t q_stride,
                      const struct kv_cache *kv, uint32_t layer, const struct attn *p);
    /* Two sources in one softmax: y, the attention of `rows` rows (tokens times heads) of n
     * elements to some keys, becomes that to those keys and to others. x is the attention to the
     * others. y_sums and x_sums: attn.sums of both. NULL: not supported. */
    void (*merge_attention)(struct device *d, float *y, const float *y_sums, const float *x,
                            const float *x_sums, uint32_t rows, uint32_t n);
    /* Recurrent layers; NULL: not supported. y: [T, channels]; rows of x are x_stride elements
     * apart; y and x do not overlap. */
    void (*conv)(struct device *d, float *y, const float *x, uint32_t x_stride,
                 const struct state_ref *s, const struct conv *p);
    uint64_t (*conv_floats)(const struct conv *p); /* of a cell that it takes */
    /* o: [T, heads * value_dim] */
    void (*recur)(struct device *d, float *o, const struct state_ref *s, const struct recur *p);
    uint64_t (*recur_floats)(const struct recur *p);
    /* x: rows of n elements, x_stride apart, in place; `w` requires n == x_stride. */
    void (*gate_norm)(struct device *d, float *x, uint32_t x_stride, uint32_t rows, uint32_t n,
                      const struct gate_norm *p);
    /* Copies cell src[i] to dst[i] for n pairs, in this order and ordered with steps. */
    int (*state_copy)(struct device *d, const struct state_ref *s, const uint32_t *src,
                      const uint32_t *dst, uint32_t n, struct err *e);
    /* y[t, i] = act(x[t, i]) * x[t, n + i], or the formula of a gated-only act; x: [rows, 2n], y:
     * [rows, n]. x is undefined afterwards: a backend may fuse this into the product that
     * computes x, and never store x. */
    void (*act_mul)(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
                    enum act act);
    void (*act)(struct device *d, float *x, uint32_t rows, uint32_t n, enum act act); /* in place */
    /* y[rows, down.rows] = linear(act(linear(x))), or with `gated` of act_mul(), in the same bits,
     * without storing what is between them. False: not done, since the operations one by one are
     * as fast. NULL: never done. */
    bool (*mlp)(struct device *d, float *y, const float *x, uint32_t rows, const struct mlp *p);
    /* xIELU (arXiv 2411.13010), in place: x > 0: a x^2 + x / 2, else b (exp(min(x, -1e-6)) - 1 - x)
     * + x / 2. NULL: not supported. */
    void (*xielu)(struct device *d, float *x, uint32_t rows, uint32_t n, float a, float b);
    /* x[t][i] = act(x[t][i]) * m[t][i], rows of n elements. NULL: not supported. */
    void (*act_by)(struct device *d, float *x, const float *m, uint32_t rows, uint32_t n,
                   enum act act);
    void (*moe)(struct device *d, float *y, const float *x, uint32_t rows, const struct moe *p);
    /* Parallel residual streams, see struct altup; rows of n elements. NULL: not supported. */
    void (*altup)(struct device *d, float *x, uint32_t rows, uint32_t n, const struct altup *p);
    /* Mixed residual streams, see struct mix; rows of n elements. NULL: not supported. */
    void (*mix)(struct device *d, float *x, uint32_t rows, uint32_t n, const struct mix *p);
    /* y[t] = x[t] * rms(like[t]) / max(rms(x[t]), sqrt(1e-5)), or with `add` y[t] += that; rows of
     * n elements; y may be x. NULL: not supported. */
    void (*match_rows)(struct device *d, float *y, const float *x, const float *like, uint32_t rows,
                       uint32_t n, bool add);
    /* y[t] = the root of the magnitude of x, at least 1e-6, with the sign of x: the sum of a[t][i]
     * * b[t][i], rows of n elements, times `scale`. NULL: not supported. */
    void (*root_dots)(struct device *d, float *y, const float *a, const float *b, uint32_t rows,
                      uint32_t n, float scale);
    /* y[t] = a[t], then b[t]: rows of n elements each. b NULL: y = a. NULL: not supported. */
    void (*beside)(struct device *d, float *y, const float *a, const float *b, uint32_t rows,
                   uint32_t n);
    /* Rows of earlier layers, see struct blend; rows of n elements. NULL: not supported. */
    void (*blend)(struct device *d, float *x, uint32_t rows, uint32_t n, const struct blend *p);
    /* The first `heads` heads of n elements of each row of x, `stride` elements apart, in place:
     * times by[heads][n] (NULL: not), then times most / (their length + 1e-6) if that is below 1.
     * NULL: not supported. */
    void (*shorten)(struct device *d, float *x, uint32_t stride, uint32_t rows, uint32_t heads,
                    uint32_t n, const float *by, float most);
    /* Each row of n elements becomes exp(x - its largest) / their sum, in place. NULL: not
     * supported. */
    void (*softmax)(struct device *d, float *x, uint32_t rows, uint32_t n);
    /* The real part of the discrete Fourier transform over the tokens of each text, a whole span
     * each. x: [T, 2 (n / 2 + 1)], for each token the first n / 2 + 1 numbers of the transform of n
     * real numbers, all real parts and then all imaginary ones; the others are their conjugates.
     * y: [T, n]. NULL: not supported. */
    void (*fourier)(struct device *d, float *y, const float *x, uint32_t n);
    /* y[i] = x[out_rows[i]], rows of n elements: the input of the last norm and the head. */
    void (*gather_out)(struct device *d, float *y, const float *x, uint32_t n);
    /* x = cap * tanh(x * scale / cap) if cap > 0, else x * scale. */
    void (*logit_scale)(struct device *d, float *x, uint32_t rows, uint32_t n, float scale,
                        float cap);

    /* Samples a token from each of n rows of logits, between the operations of a step and
     * step_end(), which then returns without waiting. Results go to one of two sets and overwrite
     * its earlier results. drawn() waits for the last draw() into a set, and for nothing that was
     * enqueued after it. *out is valid until the next draw() into that set. NULL: the host
     * samples. */
    int (*draw)(struct device *d, const struct logits *x, const struct draw *v, uint32_t n, int set,
                struct err *e);
    int (*drawn)(struct device *d, int set, struct draw_results *out, struct err *e);

    /* The host's threads, for rows in host memory, between steps: fn(arg, thread, begin, end)
     * over ranges that cover [0, n), thread < host_threads(). NULL: the caller works alone. */
    int (*host_threads)(struct device *d);
    void (*host_run)(struct device *d, void (*fn)(void *arg, int thread, size_t begin, size_t end),
                     void *arg, size_t n);

    /* From now on calls fn(arg, w, x, rows) before each product of linear() and of moe() with
     * `w`, on the thread of the step. The inputs are x [rows, W.cols] in host memory. fn NULL:
     * stop. NULL: the device does not expose activations. */
    void (*observe)(struct device *d,
                    void (*fn)(void *arg, const struct weight *w, const float *x, uint32_t rows),
                    void *arg);

    /* From now on each launch of a step runs alone, without graphs and overlap, and is reported
     * when the step ends: fn(arg, what, bytes, us). `what` names the kernel and is valid as long as
     * the device; `bytes`: of the matrix that it multiplies with, or 0. fn NULL: stop. The results
     * keep their bits. NULL: a step's operations are through when they return. */
    void (*profile)(struct device *d, profile_fn *fn, void *arg);

    /* Collectives on this device's memory for the ranks of `host`, whose collectives use host
     * memory. Close it before the device and before `host`. NULL: this device's memory is host
     * memory. */
    struct comm *(*comm_open)(struct device *d, struct comm *host, struct err *e);
    /* Messages alone (comm_send(), comm_recv()) between the devices of the ranks of `host`, which
     * need not be those of comm_open(). They are enqueued. Collective. *out: as above; NULL,
     * without an error, if a device cannot: then messages go through host memory. NULL where
     * comm_open is. */
    int (*link_open)(struct device *d, struct comm *host, struct comm **out, struct err *e);

    /* Writes what the bits of results depend on besides the model and its types: kind and order of
     * products, and of sums over the ranks of comm_open(). Devices with equal texts have equal
     * results. Empty: those that all CPUs share. `kv`, `rounds`: dtype and rounds of the kv_desc of
     * the model's caches. */
    void (*arithmetic)(const struct device *d, enum kv_dtype kv, bool rounds, char *out,
                       size_t size);
};

extern const struct backend_ops backend_cpu;

/* NULL and ERR_VALIDATION for an unknown name. "auto": a GPU if there is one, else the CPU. */
const struct backend_ops *backend_find(const char *name, struct err *e);
#endif
