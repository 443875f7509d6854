/* kernels.h - what the host enqueues: one struct of arguments and one launcher a kernel.
 *
 * A launcher enqueues on the stream and returns the launch's error; it keeps nothing. All pointers
 * are device memory. Arguments are plain bytes: two steps whose structs are equal are the same
 * work (record.c compares them), so the structs are filled from zero and hold no padding that
 * varies. Meaning of each operation: backend.h and the plain C of backend/cpu/. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_H
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_H
#include "model-server/backend/backend.h"
#include <cuda_runtime_api.h>
#ifdef __cplusplus
extern "C" {
#endif

/* How a launch is made; the same for a whole step. */
struct launch {
    cudaStream_t stream;
    bool overlap; /* programmatic dependent launch */
};
typedef cudaError_t launch_fn(const struct launch *l, const void *args);

/* ---------------------------------------------------------------- the batch on the device */

struct span_view {
    uint32_t first, n, kv_len;
    uint32_t table; /* tables[table ..]: its block numbers */
};

/* Rows [first, first + n) of a span for each K/V head: row r is query head r % group of token
 * r / group. */
struct row_tile {
    uint32_t span, first, n;
};

/* ---------------------------------------------------------------- rows.cu */

struct embed_args {
    float *y;
    const void *w;
    const uint32_t *index; /* [rows] ids or positions */
    size_t pitch;          /* elements from row to row of w */
    uint32_t rows, n, n_rows, dtype;
    uint32_t shift; /* row of w = index + shift, which may wrap: below n_rows or zero */
    float scale;
    uint32_t add; /* y += instead of y = */
};
launch_fn embed_launch;

struct norm_args {
    float *y, *x;
    const float *r; /* x += scale * r first; or NULL */
    const float *w, *b;
    uint32_t rows, n, layer, plain; /* layer: NORM_LAYER; plain: no norm, only the sum */
    float eps, scale;
};
launch_fn norm_launch;

struct act_args {
    float *y;
    const float *x;
    uint32_t rows, n, act, gated;
};
launch_fn act_launch;

struct gather_args {
    float *y;
    const float *x;
    const uint32_t *rows_of;
    uint32_t rows, n;
};
launch_fn gather_launch;

struct scale_args {
    float *x;
    uint64_t n;
    float scale, cap;
};
launch_fn scale_launch;

/* fp32 rows to 16 bits, each row padded with zeros to `pitch`. */
struct narrow_args {
    uint16_t *y;
    const float *x;
    uint32_t rows, n, pitch, dtype;
};
launch_fn narrow_launch;

/* ---------------------------------------------------------------- kv.cu */

struct rope_args {
    float *qkv;
    void *k, *v; /* this layer's [block][kv head][position][dim] */
    const float *rope, *q_norm, *k_norm;
    const uint32_t *slots;
    uint32_t tokens, n_heads, n_kv_heads, head_dim, rot_dim, interleaved;
    uint32_t block_size, dtype;
    float eps;
    uint32_t reserved;
};
launch_fn rope_launch;

struct kv_copy_args {
    void *data;
    const uint32_t *src, *dst;
    size_t stream_bytes, block_bytes;
    uint32_t n, streams;
};
launch_fn kv_copy_launch;

/* ---------------------------------------------------------------- attention*.cu */

struct attn_args {
    float *o;
    const float *q;
    const void *k, *v; /* this layer's */
    const struct span_view *spans;
    const uint32_t *tables, *span_of; /* span_of: [tokens] */
    const struct row_tile *tiles;
    const float *alibi;
    float *part_o;  /* [tile][kv head][segment][rows][dim] */
    float *part_ml; /* [tile][kv head][segment][rows][2] */
    uint32_t q_stride, tokens, n_tiles, rows, segments, dtype;
    uint32_t n_heads, n_kv_heads, head_dim, block_size, window;
    float scale, softcap;
    uint32_t reserved;
};
/* Keys whose softmax is taken in one chain; chains are merged in ascending order. */
enum { SEGMENT = 128, TILE_Q = 16, SHARED_ROWS = 64, ANY_HEAD_DIM = 512 };
launch_fn attn_any_launch;    /* any head_dim and type, one block a token and head */
launch_fn attn_split_launch;  /* tiles of up to 16 rows; a warp takes one segment */
launch_fn attn_merge_launch;  /* what attn_split left in part_* */
launch_fn attn_shared_launch; /* tiles of up to 64 rows; a block walks all their segments */
bool attn_mma_has(uint32_t head_dim, enum dtype t); /* split and shared take these */

/* ---------------------------------------------------------------- linear*.cu */

/* Products are taken in SLICES slices of k, each a multiple of 64 long, summed up in ascending
 * order: see linear_mma.cu. Columns are padded with zeros to a multiple of 64. */
enum { SLICES = 8, K_ALIGN = 64 };
static inline __host__ __device__ uint32_t k_padded(uint32_t k)
{
    return (k + K_ALIGN - 1) / K_ALIGN * K_ALIGN;
}

/* y[r, :] = x[r, :] W^T + bias. For experts (`table` not NULL), blockIdx.y chooses W: its rows are
 * list[begin[e] .. begin[e + 1]), of which x row = list[i] / per_row and y row = list[i]. */
struct linear_args {
    float *y;
    const float *x;
    const void *w;
    const uint16_t *x16; /* linear_tile: x narrowed, [rows][k_padded] */
    float *part;         /* linear_tile with slices side by side: [SLICES][rows][n] */
    const float *bias;
    const void *const *table; /* [experts] */
    const uint32_t *list, *begin;
    uint32_t rows, n, k, dtype, experts, per_row;
};
launch_fn linear_any_launch;    /* fp32 arithmetic, any type: the bits of the CPU backend */
launch_fn linear_stream_launch; /* tensor cores, up to 16 rows or experts */
launch_fn linear_tile_launch;   /* tensor cores, many rows */
launch_fn linear_sum_launch;    /* the slices of linear_tile, side by side, summed up */

/* ---------------------------------------------------------------- moe.cu */

struct route_args {
    const float *logits; /* [rows][n_experts] */
    uint32_t *expert;    /* [rows][top_k] ascending */
    float *weight;       /* [rows][top_k] */
    uint32_t rows, n_experts, top_k, renormalise;
};
launch_fn route_launch;

struct group_args {
    const uint32_t *expert; /* [pairs] */
    uint32_t *begin;        /* [n_experts + 1] */
    uint32_t *list;         /* [pairs], by expert, each ascending */
    uint32_t pairs, n_experts;
};
launch_fn group_launch;

struct mix_args {
    float *y;
    const float *x;      /* [rows * top_k][n] */
    const float *weight; /* [rows][top_k] */
    uint32_t rows, n, top_k, reserved;
};
launch_fn mix_launch;

/* ---------------------------------------------------------------- nccl.c's sums, in rows.cu */

struct rank_sum_args {
    float *y;
    const float *x; /* [world][n] */
    uint64_t n;
    uint32_t world, reserved;
};
launch_fn rank_sum_launch;
#ifdef __cplusplus
}
#endif
#endif
