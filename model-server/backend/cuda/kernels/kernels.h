/* kernels.h - kernels for the host: one struct of arguments and one launcher per kernel; those of
 * rows, caches and states are in rows.h.
 *
 * A launcher enqueues on the stream and returns the launch's error; it has no state. All pointers
 * are device memory. Two steps with equal argument structs are the same work (record.c compares
 * bytes). So the structs are zero-initialised and have no varying padding. Meaning of each
 * operation: backend.h and the plain C of backend/cpu/. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_KERNELS_H
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_KERNELS_H
#include "model-server/backend/cuda/kernels/rows.h"
#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- attention*.cu */

struct attn_args {
    float *o;
    struct narrow_rows narrow; /* of o */
    const float *q;
    struct kv_view kv;
    const struct span_view *spans;
    const uint32_t *tables, *span_of; /* span_of: [tokens] */
    const struct row_tile *tiles;
    const float *alibi, *sinks, *near, *apart, *apart_bias;
    const uint32_t *at, *kinds;
    float *part_o;     /* [tile][kv head][segment][rows][dim] */
    float *part_ml;    /* [tile][kv head][segment][rows][2] */
    uint32_t *tickets; /* [tile][kv head] zeros: attn_split merges; NULL: attn_merge merges */
    uint32_t q_stride, tokens, n_tiles, rows, segments;
    uint32_t n_heads, n_kv_heads, head_dim, window;
    float scale, softcap;
    uint32_t both;
    uint32_t v_dim; /* of a value; rows of values are head_dim apart */
    uint32_t chunk, alibi_bf16, reach, buckets;
    uint32_t beyond;             /* attn.ahead */
    const struct mutual *mutual; /* [tokens] or NULL */
    uint32_t mutual_alone, mutual_ahead;
    /* attn_split: blocks of a tile and K/V head, which take its segments in turn; the keys of
     * earlier steps are loaded before the preceding kernel has ended */
    uint32_t walkers, ahead;
    const uint32_t *top; /* see struct attn; only for attn_any and attn_entries */
    uint32_t n_top, top_block, top_tail, entries;
    struct kv_view entry_kv; /* with `entries`; only for attn_entries */
    float *sums;             /* only for attn_any: the largest score is in log2 */
    uint32_t sinks_by_token; /* only for attn_any */
    uint32_t reserved;
};
/* Keys whose softmax is one step; steps are merged in ascending order. */
enum { SEGMENT = 128, TILE_Q = 16, MMA_ROWS = 64, SHARED_ROWS = 128 };
enum { ANY_HEAD_DIM = 576, ANY_VALUE_DIM = 512 };
launch_fn attn_any_launch;     /* any head_dim and type, one block per token and head */
launch_fn attn_entries_launch; /* the same with entries beside the keys of a window */
launch_fn attn_split_launch;   /* tiles of up to 16 rows; a block takes one segment at a time */
launch_fn attn_merge_launch;   /* merges the results of attn_split in part_* */
launch_fn
    attn_shared_launch; /* tiles of up to 128 rows; a block iterates over all their segments */
/* attn_shared with its bits by wgmma, where attn_wgmma_takes() (wgmma.c) */
launch_fn attn_wgmma_launch;
#define ATTN_MMA_DIMS(X) X(64) X(80) X(96) X(112) X(128) X(192) X(256)
bool attn_mma_has(uint32_t head_dim, enum kv_dtype t); /* supported by split and shared */

/* One file per type of cache: attn_split or attn_shared. */
typedef cudaError_t attn_start_fn(const struct launch *l, const struct attn_args *a, bool split);
attn_start_fn attn_start_f16, attn_start_bf16, attn_start_i8, attn_start_fp8, attn_start_i4;

/* ---------------------------------------------------------------- select.cu */

/* The indexer of sparse attention: see struct select_keys. `kv`: the cache of index keys. */
struct index_args {
    float *q, *k;
    const float *rope; /* or NULL */
    const uint32_t *slots;
    struct kv_view kv;
    uint32_t tokens, n_heads, dim, rot_at, rot_dim, interleaved;
    uint32_t turned, reserved; /* see struct select_keys */
};
launch_fn index_launch; /* rotates queries and keys, and writes the keys to the cache */

/* Tokens [first, first + rows) of the step. */
struct select_args {
    uint32_t *chosen; /* [tokens][sets][top] */
    float *scores;    /* [rows][sets][pitch] */
    const float *q, *weights;
    struct kv_view kv;
    const struct span_view *spans;
    const uint32_t *tables, *span_of;
    uint32_t first, rows, n_heads, dim, top, pitch;
    uint32_t block, local, sets; /* see struct select_keys; sets: selections of a token */
    uint32_t pooled, by_head, complete, reserved;
};
enum { INDEX_KEYS = 64, INDEX_MOST_DIM = 128 };
launch_fn index_score_launch; /* of all positions, of tokens with more than `top`, or blocks */
launch_fn index_choose_launch;

/* See pool_keys() in backend.h (pooled.cu). */
struct pooled_args {
    float *k, *base;
    const float *x, *gates, *bias;
    const struct span_view *spans;
    uint64_t stride;
    uint32_t dim, size, n_spans, series;
};
launch_fn pooled_launch;

/* ---------------------------------------------------------------- entries.cu */

/* See turn() in backend.h. */
struct turn_args {
    float *x;
    const float *rope;
    uint32_t tokens, n_heads, dim, at, rot_dim, interleaved, back, reserved;
};
launch_fn turn_launch;

/* See keep() in backend.h; every: 0, or `kv` is of entries of this many positions. block_size: of
 * the cache's blocks. */
struct keep_args {
    const float *x;
    struct kv_view kv;
    const uint32_t *slots, *span_of;
    const struct span_view *spans;
    uint32_t tokens, dim, every, block_size;
};
launch_fn keep_launch;

/* ---------------------------------------------------------------- linear*.cu */

/* Products are computed in SLICES slices of k, each a multiple of k_align() long, summed in
 * ascending order: see linear_mma.cuh. */
enum { SLICES = 8 };

/* Work of the experts' products, made by `group`: the pairs list[first .. first + n) of an expert.
 * before: number of tiles of rows of the experts before it. */
struct expert_job {
    uint32_t expert, first, n, before;
};

/* y[r, :] = x[r, :] W^T + bias. For experts (`table` not NULL), W is one of several, all of the
 * shape and kind of `w`: the rows of expert e are list[begin[e] .. begin[e + 1]), of which x row =
 * list[i] / per_row and y row = list[i]. jobs: experts that have rows, or their tiles of rows,
 * ascending; begin[experts + 1]: number of jobs. `rows` are those of x. */
struct linear_args {
    float *y;
    const float *x;
    struct stored w;
    /* [rows][k_padded]: x as the product takes it, in 16 bits (linear_tile) or with w8a8 in 8, and
     * then [rows] scales */
    const void *narrow;
    const float *x_scale;
    const float *sums; /* linear_wgmma of weights with offsets: see struct group_sums_args */
    float *part;       /* linear_tile with parallel slices: [SLICES][rows][n] */
    const float *bias;
    const void *const *table; /* [experts] */
    const uint32_t *list, *begin;
    const struct expert_job *jobs;
    uint32_t rows, experts, per_row;
    /* linear_wgmma: rows of a tile, 64, 128 or 192. It and
     * linear_stream: blocks at once; with `gate`, y is of n / 2 columns, act(the first half) * the
     * second one. linear_wgmma: act is ACT_SILU or ACT_GELU_TANH, and part is NULL */
    uint32_t reserved;
    uint32_t tile_rows, blocks, gate, act;
    struct narrow_rows gated; /* of y, with a gate */
};
/* y = the sum of the results of a row's experts, in the order of their numbers. sum: NULL, or sum
 * += scale * y instead of y. */
struct mix_args {
    float *y, *sum;
    const float *x;      /* [rows * top_k][n] */
    const float *weight; /* [rows][top_k] */
    uint32_t rows, n, top_k;
    uint32_t plain; /* the results are added without weights */
    float scale;
    const uint32_t *expert; /* NULL: all results are here; [rows][top_k] */
    uint32_t first, here;   /* with `expert`: only those of experts [first, first + here) are */
    uint32_t reserved;
};

/* linear_stream: the product `l` on l.blocks blocks (l.gate as above, any act), or of experts. What
 * comes with it has the bits that it would have by itself:
 *   norm.y   not NULL: x is this norm; see stream_x_bytes(). norm.x is not l.x
 *   sum      not NULL: sum += scale * product, instead of y
 *   rope.qkv not NULL: it is l.y; tickets: a zero for each head
 *   shared_x x goes through shared memory, of stream_x_bytes(): from l.narrow (NARROW_PLAIN), or if
 *            that is NULL from l.x
 *
 *   slots    of a warp's ring: STREAM_SLOTS_MOST, STREAM_SLOTS or STREAM_SLOTS_FEW
 *
 *   acts     y = act(product), of experts as what follows
 *   bias_of  NULL, or [experts][n]: biases
 *   scale_of NULL, or [pairs]: factors of the products with their biases, before a gate
 *   mix.y    not NULL: the experts' results of a row are added (mix.x is not used)
 */
struct stream_args {
    struct linear_args l;
    struct norm_args norm;
    struct rope_args rope;
    float *sum;
    uint32_t *tickets;
    float scale;
    uint32_t shared_x, slots, acts;
    const float *bias_of, *scale_of;
    struct mix_args mix;
};
enum { STREAM_ROWS = 16, STREAM_OUTS = 16 /* of a tile: in one head */ };
enum { STREAM_SLOTS_MOST = 12, STREAM_SLOTS = 8, STREAM_SLOTS_FEW = 4 };
/* Row pitch of x in shared memory: rows in 16 bits, 64 bytes further apart than their length (a
 * multiple of 128), so that two rows are in different banks. */
static inline __host__ __device__ size_t stream_x_pitch(const struct linear_args *l)
{
    return k_padded(l->w.cols, l->w.quant) * (size_t)2 + 64;
}
static inline __host__ __device__ size_t stream_x_bytes(const struct linear_args *l)
{
    return l->rows * stream_x_pitch(l);
}

/* Shared memory of a block: two sets of its slices' sums, 8 or 16 rows each, and a word; a warp's
 * slot; all. */
static inline __host__ __device__ uint32_t stream_sums_bytes(uint32_t rows)
{
    return 2 * SLICES * STREAM_OUTS * (rows <= 8 ? 8 : 16) * 4 + 128;
}
static inline __host__ __device__ uint32_t stream_slot_bytes(uint32_t quant)
{
    const uint32_t offsets = quant == PACKED_4 || quant == PACKED_8;
    return 1024 + step_scales(quant) * (is_grouped(quant) + offsets);
}
/* Of experts, between the ring and x: the experts that may have pairs, the sums of a tile's outputs
 * of each row (mix), and with x the list. */
enum { EXPERT_BYTES = 24 };
static inline __host__ __device__ uint32_t stream_pairs(const struct stream_args *s)
{
    return s->l.rows * s->l.per_row;
}
static inline __host__ __device__ size_t stream_active_bytes(const struct stream_args *s)
{
    const uint32_t pairs = stream_pairs(s), n = pairs < s->l.experts ? pairs : s->l.experts;
    return (n * (size_t)EXPERT_BYTES + 15) / 16 * 16;
}
static inline __host__ __device__ size_t stream_mixed_bytes(const struct stream_args *s)
{
    return s->mix.y ? s->mix.rows * (size_t)STREAM_OUTS * sizeof(float) : 0;
}
static inline __host__ __device__ size_t stream_list_bytes(const struct stream_args *s)
{
    return s->shared_x ? (stream_pairs(s) * sizeof(uint32_t) + 15) / 16 * 16 : 0;
}
static inline size_t stream_shared_bytes(const struct stream_args *s)
{
    const bool x = s->norm.y || s->shared_x;
    const size_t experts =
        s->l.table ? stream_active_bytes(s) + stream_mixed_bytes(s) + stream_list_bytes(s) : 0;
    return stream_sums_bytes(s->l.table ? 8 : s->l.rows) +
           (size_t)SLICES * s->slots * stream_slot_bytes(s->l.w.quant) + experts +
           (x ? stream_x_bytes(&s->l) : 0);
}

launch_fn linear_any_launch; /* fp32 arithmetic, any type: the bits of the CPU backend */
/* linear_any of float32 weights of a multiple of K_ALIGN columns: few rows or few outputs */
launch_fn linear_chain_launch;
launch_fn linear_stream_launch;  /* stream_args: tensor cores, up to 16 rows or experts */
launch_fn experts_stream_launch; /* of experts */
launch_fn linear_tile_launch;    /* tensor cores, many rows */
/* the same with wgmma; narrow in the order NARROW_WGMMA, or NARROW_WGMMA_HALVES for PACKED_8 */
launch_fn linear_wgmma_launch;
/* linear_wgmma's part for weights in 8 bits, for w8a8 and PACKED_8, and for weights in 4 bits. */
cudaError_t linear_bytes_wgmma(const struct launch *l, const struct linear_args *a);
cudaError_t linear_codes_wgmma(const struct launch *l, const struct linear_args *a);
cudaError_t linear_nibbles_wgmma(const struct launch *l, const struct linear_args *a);
/* y[group][row] = the sum of the row's `columns` columns of each group, 16 or 32, for offsets of
 * linear_wgmma. x: as that takes it, [rows][groups * columns]. pitch: `rows` rounded up to tiles of
 * GROUP_SUM_ROWS, whose rest becomes zeros. With the bits of the sums that linear_tile makes. */
struct group_sums_args {
    float *y;
    const uint16_t *x;
    uint32_t rows, pitch, groups, columns, dtype, reserved;
};
enum { GROUP_SUM_ROWS = 64 };
static inline uint32_t group_sums_pitch(uint32_t rows)
{
    return (rows + GROUP_SUM_ROWS - 1) / GROUP_SUM_ROWS * GROUP_SUM_ROWS;
}
launch_fn group_sums_launch;
launch_fn linear_sum_launch; /* sums the parallel slices of linear_tile */

/* linear_experts: products of experts by wgmma, of quantised ones in tiles of EXPERT_FEW rows. l:
 * narrow has the pairs' rows of x, in the order of the list and NARROW_WGMMA; jobs are tiles of
 * l.tile_rows rows; rows: pairs; gate with ACT_SILU or ACT_GELU_TANH. maps: [experts] of
 * EXPERT_MAP_BYTES in device memory, see linear_experts_map(). bias_of, scale_of: as in
 * stream_args. With a gate l.gated is alone, in the order of the list and NARROW_WGMMA. */
struct experts_args {
    struct linear_args l;
    const void *maps;
    const float *bias_of, *scale_of;
};
enum { EXPERT_FEW = 64, EXPERT_MANY = 192, EXPERT_MAP_BYTES = 256 };
launch_fn linear_experts_launch;
/* Host memory of EXPERT_MAP_BYTES at a multiple of 64: the maps of one expert's matrix. */
cudaError_t linear_experts_map(void *map, const struct stored *w);

/* ---------------------------------------------------------------- moe.cu */

/* y[i] = x[list[i] / per_row], rounded to 16 bits, in the order NARROW_WGMMA. */
struct collect_args {
    uint16_t *y;
    const float *x;
    const uint32_t *list, *used; /* used: how many pairs are in the list, of `rows` at most */
    uint32_t rows, per_row, n, pitch, dtype, reserved;
};
launch_fn collect_launch;

/* tile: rows of a tile; an expert has a job for each tile of its pairs. Only pairs of experts
 * [first, first + here) are in the list, and have jobs. */
struct group_args {
    const uint32_t *expert;  /* [pairs] */
    uint32_t *begin;         /* [n_experts + 2], see linear_args */
    uint32_t *list;          /* [pairs], by expert, each ascending */
    struct expert_job *jobs; /* [n_experts + pairs / tile] at most */
    uint32_t pairs, n_experts, tile, first, here, reserved;
};
launch_fn group_launch;

struct route_args {
    const float *logits;      /* [rows][n_experts] */
    uint32_t *expert;         /* [rows][top_k] ascending */
    float *weight;            /* [rows][top_k] */
    const float *select_bias; /* [n_experts] or NULL */
    uint32_t rows, n_experts, top_k, renormalise;
    uint32_t score, n_groups, top_groups, group_pairs; /* see struct moe; score: enum moe_score */
    float scale, jitter;
    const float *expert_scale;   /* [n_experts] or NULL */
    const uint32_t *by_id, *ids; /* see struct moe; ids: [rows] */
    uint32_t n_ids, select_logits;
    struct group_args group; /* begin not NULL: of the results; up to ROUTE_ROWS rows */
};
enum { ROUTE_ROWS = 32 };
launch_fn route_launch;

/* Pairs of a row and a head, for each head its rows: list[h * rows + t] = t * heads + h. */
struct heads_args {
    uint32_t *begin, *list;  /* [heads + 2], [heads * rows] */
    struct expert_job *jobs; /* [heads] */
    uint32_t rows, heads;
};
launch_fn heads_launch;

launch_fn mix_launch;

/* y[row] += weight[pair] * x[row] for the pairs of experts from `first` on, which have no weights;
 * rows of n. */
struct zero_args {
    float *y;
    const float *x, *weight;
    const uint32_t *expert;
    uint32_t rows, n, top_k, first;
};
launch_fn zero_launch;

/* y[pair] *= weight[pair], rows of n */
struct pair_scale_args {
    float *y;
    const float *weight;
    uint32_t pairs, n;
};
launch_fn pair_scale_launch;

struct expert_bias_args {
    float *y;               /* [pairs][n], added to */
    const float *bias;      /* [n_experts][n] */
    const uint32_t *expert; /* [pairs]; NULL: all are 0 */
    uint32_t pairs, n;
};
launch_fn expert_bias_launch;

/* ---------------------------------------------------------------- lora.cu */

/* struct lora and struct lora_set on the device. */
struct lora_part {
    const void *const *a, *const *b;
    uint32_t rank, first, n, dtype;
    float scale;
    uint32_t reserved;
};
struct lora_view {
    struct lora_part part[LORA_MAX_PARTS];
    uint32_t n_parts, reserved;
};
/* Rows [first, first + n) of the batch, of one span. */
enum { LORA_TOKENS = 4, LORA_RANKS = 16 /* of a block of lora_down */ };
struct lora_tile {
    uint32_t first, n, adapter, reserved;
};
struct lora_args {
    float *y;
    const float *x;
    const struct lora_view *of; /* by adapter */
    const struct lora_tile *tiles;
    float *u; /* [tiles][LORA_TOKENS][LORA_MAX_PARTS][rank] */
    uint32_t y_width, x_width, n_tiles;
    uint32_t rank, outs; /* maximum over parts, of ranks and of outputs */
    uint32_t reserved;
};
launch_fn lora_down_launch; /* u = A x */
launch_fn lora_up_launch;   /* y += scale u B */

/* ---------------------------------------------------------------- draw.cu */

/* A row for the kernel; offsets are in 32-bit words of draw_args.words. DRAW_KNOWN: absent. */
struct draw_view {
    float temperature, top_p, min_p, typical_p;
    float repetition, frequency, openai_presence, openai_frequency;
    uint32_t seed[2], position[2]; /* low words first */
    uint32_t top_k, n_top;
    uint32_t fetch, sample, raw,
        penalised;             /* raw: log-probabilities are those before the filters */
    uint32_t adds, n_adds;     /* ids, then as many floats to add in order; -inf replaces */
    uint32_t counts, n_counts; /* struct token_count, none empty */
    uint32_t length, mask;
    uint32_t out;  /* place in draw_args.board */
    uint32_t last; /* index there of the context's last token */
    /* in pinned memory of the host: the result once more, and [n_top] alternatives */
    struct drawn *host;
    struct scored *host_top;
};
struct draw_args {
    struct logits logits;
    const struct draw_view *v; /* [rows] */
    const uint32_t *words;
    float *scores; /* [rows][pitch] scratch */
    struct drawn *board;
    uint32_t rows, pitch, team; /* team: blocks per row, a power of two */
    uint32_t kept;              /* each block keeps its part of a row in shared memory */
};
size_t draw_kept_bytes(uint32_t vocab, uint32_t team); /* shared memory of a block then */
launch_fn draw_launch;

/* ids[i] = board[from[i]].id */
struct feed_args {
    uint32_t *ids;
    const uint32_t *from;
    const struct drawn *board;
    uint32_t n, reserved;
};
launch_fn feed_launch;

/* ---------------------------------------------------------------- sums over ranks */

/* rows.cu: y = the sum over ranks, in their order, of `own` on this rank and x[r] on the others. */
struct rank_sum_args {
    float *y;
    const float *x; /* [world][n] */
    const float *own;
    uint64_t n;
    uint32_t world, rank;
};
launch_fn rank_sum_launch;

/* oneshot.cu. A block's part of a message, the maximum number of ranks, and the layout of a
 * region; its parts begin at multiples of 128 bytes. */
enum { ONESHOT_CHUNK = 1024, ONESHOT_RANKS = 8 };
enum oneshot_word { ONESHOT_STOP, ONESHOT_MISSING /* 1 + rank */, ONESHOT_WORDS };
static inline __host__ __device__ size_t oneshot_flags(uint32_t blocks)
{
    return ((blocks + 1) * sizeof(uint32_t) + 127) / 128 * 128;
}
static inline __host__ __device__ size_t oneshot_slots(uint32_t blocks)
{
    return oneshot_flags(blocks) +
           ((size_t)blocks * ONESHOT_RANKS * sizeof(uint32_t) + 127) / 128 * 128;
}
static inline size_t oneshot_region(uint32_t blocks, uint32_t world)
{
    return oneshot_slots(blocks) + (size_t)blocks * 2 * world * ONESHOT_CHUNK * sizeof(float);
}

struct oneshot_args {
    float *x;                   /* summed in place; 16-byte aligned */
    char *peers[ONESHOT_RANKS]; /* regions of the ranks, including this one's */
    uint32_t *words;            /* host memory: enum oneshot_word */
    uint64_t n, patience_ns;    /* n: a multiple of 4, at most blocks * ONESHOT_CHUNK */
    uint32_t rank, world, blocks, reserved;
};
launch_fn oneshot_launch;
#ifdef __cplusplus
}
#endif
#endif
