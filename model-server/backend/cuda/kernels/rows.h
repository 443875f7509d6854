/* rows.h - part of kernels.h: what a launch and a batch are for kernels; operations on
 * rows, on the KV cache and on recurrent states. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_ROWS_H
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_ROWS_H
#include "model-server/backend/cuda/stored.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Parameters of a launch; the same for a whole step. */
struct launch {
    cudaStream_t stream;
    bool overlap; /* programmatic dependent launch */
};
typedef cudaError_t launch_fn(const struct launch *l, const void *args);

/* ---------------------------------------------------------------- the batch on the device */

struct span_view {
    uint32_t first, n, kv_len;
    uint32_t table; /* tables[table ..]: its block numbers */
    uint32_t state_in, state_out;
};

/* Rows [first, first + n) of a span for each K/V head: row r is query head r % group of token
 * r / group. */
struct row_tile {
    uint32_t span, first, n;
};

/* ---------------------------------------------------------------- rows.cu */

struct embed_args {
    float *y;
    struct stored w;
    const uint32_t *index; /* [rows] ids or positions */
    uint32_t rows, shift;  /* row of w = index + shift, which may wrap: one of w's rows or zero */
    float scale;
    uint32_t add; /* y += instead of y = */
};
launch_fn embed_launch;

/* See embed_ngrams() in backend.h (ngrams.cu). */
struct ngrams_args {
    uint32_t *rows; /* [tokens][n] */
    float *base;
    const uint32_t *ids;
    const struct ngram_table *tables;
    const struct span_view *spans;
    const uint32_t *span_of;
    size_t stride; /* of the cells */
    uint64_t by[NGRAM_IDS];
    uint32_t most, n, end, tokens, n_spans, reserved;
};
launch_fn ngrams_launch;      /* rows */
launch_fn ngrams_keep_launch; /* then stores the ids that the next step needs */

struct give_args {
    float *y;
    const float *x;
    const uint32_t *which; /* [rows] the row of x, or GIVE_NONE */
    uint32_t rows, n, add;
};
#define GIVE_NONE UINT32_MAX
launch_fn give_launch;

/* Order of the columns of a row in 16 bits. NARROW_WGMMA: a step of 16 columns in memory has the
 * columns, and their order, of a step of linear_mma.cuh: of 32 columns, 8t + 2j + e (t, j < 4; e
 * < 2) is number 8j + 2t + e. NARROW_HALVES: a lane's 8 columns are those of PACKED_8: of 32
 * columns, 16h + 4t + i (h < 2; t, i < 4) is number 8t + 4h + i. NARROW_WGMMA_HALVES: as
 * NARROW_WGMMA for these: of 16 columns, 4t + 2j + e (j, e < 2) is number 8j + 2t + e. */
enum narrow_order { NARROW_PLAIN, NARROW_WGMMA, NARROW_HALVES, NARROW_WGMMA_HALVES };
static inline __host__ __device__ uint32_t narrow_place(uint32_t k, uint32_t order)
{
    const uint32_t in = k % 32;
    if (order == NARROW_WGMMA)
        return k - in + in % 8 / 2 * 8 + in / 8 * 2 + in % 2;
    if (order == NARROW_WGMMA_HALVES)
        return k - in % 16 + in % 4 / 2 * 8 + in % 16 / 4 * 2 + in % 2;
    return order == NARROW_HALVES ? k - in + in % 16 / 4 * 8 + in / 16 * 4 + in % 4 : k;
}

/* Results that are stored in 16 bits for the product that reads them next, as `narrow` would have
 * them. */
struct narrow_rows {
    uint16_t *to; /* NULL: they are not */
    uint32_t pitch, dtype, order;
    uint32_t alone; /* instead of rows in fp32 */
};

struct norm_args {
    float *y, *x;
    const float *r; /* x += scale * r first; or NULL */
    const float *w, *b;
    uint32_t rows, n, layer, plain; /* layer: NORM_LAYER; plain: no norm, only the sum */
    float eps, scale;
    struct narrow_rows narrow; /* of y */
};
launch_fn norm_launch;

/* See row_squares() and gate_rows() in backend.h. */
struct squares_args {
    float *y;
    const float *x;
    uint32_t rows, stride, a, b;
};
launch_fn squares_launch;

struct gate_args {
    float *x;
    const float *gate;
    uint32_t rows, n, softplus, reserved;
};
launch_fn gate_launch;

/* See scale_heads() in backend.h; `all`: elements of x. */
struct scale_heads_args {
    float *x;
    const float *by, *slope, *offset;
    uint64_t all;
    uint32_t heads, n;
};
launch_fn scale_heads_launch;

struct act_args {
    float *y;
    const float *x, *by; /* by: factor of an activation that is not gated, or NULL */
    uint32_t rows, n, act, gated;
};
launch_fn act_launch;

struct xielu_args {
    float *x;
    uint64_t n;
    float a, b;
};
launch_fn xielu_launch;

/* See altup(), match_rows(), beside(), softmax(), row_moments() and sparsify() in backend.h
 * (streams.cu). */
struct altup_args {
    float *x, *streams;
    const float *coefs;
    uint32_t rows, n, kind, streams_n, active, reserved;
};
launch_fn altup_launch;

/* See mix() in backend.h (mix.cu). */
struct streams_args {
    float *x, *streams, *factors;
    const float *scale, *base;
    uint32_t rows, n, kind, streams_n, rounds, count; /* count: of mix_factors() */
    float eps, floor, magnitude, result_floor;
};
launch_fn streams_launch;

struct match_args {
    float *y;
    const float *x, *like;
    uint32_t rows, n, add, reserved;
};
launch_fn match_launch;

struct dots_args {
    float *y;
    const float *a, *b;
    uint32_t rows, n;
    float scale;
    uint32_t reserved;
};
launch_fn dots_launch;

/* See struct blend, and shorten() in backend.h. */
struct blend_args {
    float *x, *streams;
    const float *query;
    uint32_t rows, n, slots, at, kind;
    float eps;
    uint32_t raw, reserved;
};
launch_fn blend_launch;

struct shorten_args {
    float *x;
    const float *by;
    uint32_t rows, stride, heads, n;
    float most;
    uint32_t reserved;
};
launch_fn shorten_launch;

struct beside_args {
    float *y;
    const float *a, *b;
    uint32_t rows, n;
};
launch_fn beside_launch;

struct softmax_args {
    float *x;
    uint32_t rows, n;
};
launch_fn softmax_launch;

/* See fourier() in backend.h; half: n / 2 + 1. */
struct fourier_args {
    float *y;
    const float *x;
    const struct span_view *spans;
    const uint32_t *span_of;
    uint32_t n, half, tokens;
};
launch_fn fourier_launch;

/* See merge_attention() in backend.h. */
struct merge_args {
    float *y;
    const float *y_sums, *x, *x_sums;
    uint32_t rows, n;
};
launch_fn merge_launch;

struct moments_args {
    float *y;
    const float *x;
    uint32_t rows, n, stride, reserved;
};
launch_fn moments_launch;

struct sparsify_args {
    float *x;
    const float *moments;
    uint32_t rows, n, stride, of;
    float deviations;
    uint32_t reserved;
};
launch_fn sparsify_launch;

/* Generated rows of a matrix: see random_tensor.h. */
struct random_args {
    void *w;
    uint64_t first;
    int64_t row_stride, col_stride;
    uint32_t rows, cols, pitch, dtype, seed;
    float mean, spread;
    uint32_t reserved;
};
launch_fn random_launch;

/* Does nothing for `ns` nanoseconds: what is enqueued meanwhile then runs without gaps. */
struct pause_args {
    uint64_t ns;
};
launch_fn pause_launch;

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

struct clip_args {
    float *y;
    const float *x, *low, *high;
    uint64_t all;
    uint32_t n, reserved;
};
launch_fn clip_launch;

/* Converts fp32 rows to 16 bits, each row padded with zeros to `pitch`, its columns in an
 * order. */
struct narrow_args {
    uint16_t *y;
    const float *x;
    uint32_t rows, n, pitch, dtype, order, reserved;
};
launch_fn narrow_launch;

/* Converts fp32 rows to 8 bits with a scale each, as k_quantise_ref(); padded with zeros to
 * `pitch`. order: of pairs of them, as if each pair was a number of 16 bits. */
struct quantise_args {
    int8_t *y;
    float *scale;
    const float *x;
    uint32_t rows, n, pitch, order;
};
launch_fn quantise_launch;

/* ---------------------------------------------------------------- kv.cu */

/* A layer's K and V. A block is [kv head][position][kv_row_numbers()] numbers, then, of types that
 * have them, [kv head][position] fp32 scales. Those of int4 are rotated: hadamard.cuh. */
struct kv_view {
    char *k, *v;
    uint32_t block_bytes, scales; /* size of a block; offset of its scales, 0: none */
    uint32_t block_size, dtype;   /* enum kv_dtype */
    uint32_t block_shift, rows;   /* block_size is 2^block_shift; heads of all positions of K */
};
/* Positions of a block whose scales are copied at once: the smallest block with scales. */
enum { SCALES_AT_ONCE = 4 };

/* Numbers of a head's row in the cache: int4 has whole words. */
static inline __host__ __device__ uint32_t kv_row_numbers(uint32_t dtype, uint32_t dim)
{
    return dtype == KV_I4 ? (dim + 7) & ~7u : dim;
}
/* The greatest power of two that divides `dim`: the number of adjacent numbers that are rotated
 * together. */
static inline __host__ __device__ uint32_t hadamard_size(uint32_t dim) { return dim & -dim; }

struct rope_args {
    float *qkv;
    struct kv_view kv;
    const float *rope, *q_norm, *k_norm, *v_norm, *q_norm_bias, *k_norm_bias;
    const uint32_t *slots;
    const float *squares; /* [tokens][SQUARES] or NULL: see struct rope_kv */
    const float *q_scale;
    uint32_t tokens, n_heads, n_kv_heads, head_dim, v_dim, rot_dim, interleaved;
    float eps;
    uint32_t q_all, k_all;
    uint32_t norm_layer, norm_by_head, norm_last;
    float clip;
};
launch_fn rope_launch;

/* y = H x of each head, in runs of `size` numbers; y is [tokens][heads][dim], may be x; tokens of x
 * are `stride` numbers apart. */
struct hadamard_args {
    float *y;
    const float *x;
    uint32_t tokens, heads, dim, size, stride, reserved;
};
launch_fn hadamard_launch; /* hadamard.cu */

struct latent_args {
    float *q;
    const float *kv_rows, *latent, *turned, *rope, *norm, *turn_norm, *q_scale;
    const uint32_t *slots;
    struct kv_view kv;
    uint32_t tokens, n_heads, rank, rot_dim, interleaved;
    float eps;
};
launch_fn latent_launch;

struct kv_copy_args {
    void *data;
    const uint32_t *src, *dst;
    size_t stream_bytes, block_bytes;
    uint32_t n, streams;
};
launch_fn kv_copy_launch;

/* ---------------------------------------------------------------- state.cu */

/* See conv(), recur() and gate_norm() in backend.h. A layer's part of a cell: of a convolution its
 * last width - 1 inputs, [width - 1][channels]; of a recurrence [heads][key_dim][value_dim]. */
struct conv_args {
    float *y, *base;
    const float *x, *w, *bias;
    const struct span_view *spans;
    const uint32_t *span_of;
    size_t stride; /* of the cells */
    uint32_t x_stride, channels, width, silu, tokens, n_spans;
    uint32_t before; /* conv_before() */
    uint32_t sums;   /* at least 1 */
    const float *by; /* see struct conv */
    uint32_t each, reserved;
};
launch_fn conv_launch;      /* y */
launch_fn conv_keep_launch; /* then stores the inputs that the next step needs */

struct recur_args {
    float *o, *x, *work, *base;
    const float *step, *beta, *a_log, *dt_bias, *skip, *rates, *kq, *beta_bias;
    const struct span_view *spans;
    size_t stride;
    uint32_t x_stride, q, k, v, step_stride, beta_stride, heads, key_heads, key_dim, value_dim;
    uint32_t kind, by_key, tokens, n_spans; /* kind: enum recur_kind */
    float dt_min, dt_max, beta_scale, floor;
};
enum { RECUR_MOST_KEYS = 1024 }; /* key_dim */
launch_fn recur_prepare_launch;  /* work, and the lengths of queries and keys */
launch_fn recur_launch;
launch_fn gated_launch; /* RECUR_GATED, which has no work */

/* rwkv.cu: RECUR_RWKV. All rows are [heads * dim]; see struct recur and struct rwkv. */
struct rwkv_args {
    float *o, *k, *v, *work, *base;
    const float *q, *step, *step_bias, *rate, *rate_bias;
    const float *erase, *replace, *bonus, *first, *blend, *blend_bias, *norm, *norm_bias, *gate;
    const struct span_view *spans;
    size_t stride; /* of the cells */
    uint32_t heads, dim, tokens, n_spans;
    float eps;
};
launch_fn rwkv_prepare_launch; /* work, keys and values */
launch_fn rwkv_launch;         /* o */
launch_fn rwkv_finish_launch;  /* o: its norm, bonus and gate */

struct gate_norm_args {
    float *x;
    const float *gate, *w, *squares;
    uint32_t x_stride, stride, rows, n, kind, group, norm_first, column, all;
    float eps;
};
launch_fn gate_norm_launch;
#ifdef __cplusplus
}
#endif
#endif
