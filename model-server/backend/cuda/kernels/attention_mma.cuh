/* attention_mma.cuh - paged attention on tensor cores, for head dimensions 64 to 256 and K and V of
 * 16 or 8 bits; attention_<type>.cu makes the kernels of one type of cache.
 *
 * The query heads of one K/V head are rows of one product (GQA packing). A warp has 16 rows: scores
 * by m16n8k16, softmax of a segment in registers, weights (rounded to 16 bits) times values by
 * m16n8k16. Two kernels with the same definition of a segment:
 *
 *   split    decode: attention_split.cuh
 *   shared   prefill: attention_shared.cuh
 *
 * attention_wgmma.cu has the bits of the second one on Hopper.
 *
 * How keys and values lie in shared memory, and what a type of cache makes of them there:
 * attention_cache.cuh. A key's scale multiplies its scores, a value's its weight, before that is
 * rounded.
 *
 * No more than 99 KiB of shared memory a block, which sm_86 and 89 have: static_asserts. Order of
 * the sums: attention.cuh. After FlashAttention-2 (Dao 2023) and FlashInfer (Ye et al. 2025). */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_MMA_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_MMA_CUH
#include "model-server/backend/cuda/kernels/attention.cuh"
#include "model-server/backend/cuda/kernels/attention_cache.cuh"

enum : uint32_t { PIECES = SEGMENT / KEYS, SHARED_MOST = 99 << 10 };

/* ---------------------------------------------------------------- rows */

/* A warp's state of its 16 rows; a lane has rows g and g + 8 of them. */
struct lane_rows {
    uint32_t lo[2], hi[2]; /* keys of the rows: [lo, hi); none: hi = 0 */
    uint32_t head[2];
    uint32_t first, end; /* of all 16 rows */
};

static __device__ lane_rows lane_of(const attn_args &a, const tile_rows &t, uint32_t warp_row)
{
    lane_rows r = {};
    for (int i = 0; i < 2; i++) {
        uint32_t row = warp_row + threadIdx.x % 32 / 4 + 8 * i;
        if (row < t.n) {
            const key_range k = t.keys(a, row);
            r.lo[i] = k.begin, r.hi[i] = k.end;
            r.head[i] = t.head(row);
        }
    }
    if (warp_row < t.n) {
        const uint32_t n = t.n - warp_row < TILE_Q ? t.n - warp_row : (uint32_t)TILE_Q;
        const key_range k = t.all_keys(a, warp_row, n).some;
        r.first = k.begin, r.end = k.end;
    }
    return r;
}

/* ---------------------------------------------------------------- queries */

static __device__ __forceinline__ const float *query_row(const attn_args &a, const tile_rows &t,
                                                         uint32_t row)
{
    if (row >= t.n)
        return NULL;
    return a.q + (size_t)(t.span.first + t.token(row)) * a.q_stride +
           (size_t)t.head(row) * a.head_dim;
}

/* Fragment m of the warp's rows lo and hi. */
template <typename C, int DIM>
static __device__ __forceinline__ uint4 query_fragment(const float *lo, const float *hi, int m)
{
    const uint32_t d = C::template low<DIM>(m, threadIdx.x % 4);
    const uint32_t e = C::template high<DIM>(m, threadIdx.x % 4);
    const float2 none = {};
    const float2 a = lo ? *(const float2 *)(lo + d) : none,
                 b = hi ? *(const float2 *)(hi + d) : none;
    const float2 c = lo ? *(const float2 *)(lo + e) : none,
                 f = hi ? *(const float2 *)(hi + e) : none;
    return make_uint4(C::Mma::pack(a.x, a.y), C::Mma::pack(b.x, b.y), C::Mma::pack(c.x, c.y),
                      C::Mma::pack(f.x, f.y));
}

/* The warp's 16 rows of q as A fragments, in registers. */
template <typename C, int DIM> struct queries {
    uint4 r[DIM / 16];
    __device__ __forceinline__ void fill(const attn_args &a, const tile_rows &t)
    {
        const uint32_t row = threadIdx.x % 32 / 4;
        const float *lo = query_row(a, t, row), *hi = query_row(a, t, row + 8);
#pragma unroll
        for (int m = 0; m < DIM / 16; m++)
            r[m] = query_fragment<C, DIM>(lo, hi, m);
    }
    __device__ __forceinline__ void get(int m, uint32_t (&f)[4]) const
    {
        f[0] = r[m].x, f[1] = r[m].y, f[2] = r[m].z, f[3] = r[m].w;
    }
};

/* The same in shared memory: each lane reads what the same lane of the writing warp stored. */
template <typename C, int DIM> struct shared_queries {
    uint4 *at; /* [DIM / 16][32] */
    __device__ __forceinline__ void fill(const attn_args &a, const tile_rows &t,
                                         uint32_t warp_row) const
    {
        const uint32_t lane = threadIdx.x % 32;
        const float *lo = query_row(a, t, warp_row + lane / 4);
        const float *hi = query_row(a, t, warp_row + lane / 4 + 8);
#pragma unroll
        for (int m = 0; m < DIM / 16; m++)
            at[m * 32 + lane] = query_fragment<C, DIM>(lo, hi, m);
    }
    __device__ __forceinline__ void get(int m, uint32_t (&f)[4]) const
    {
        const uint4 v = at[m * 32 + threadIdx.x % 32];
        f[0] = v.x, f[1] = v.y, f[2] = v.z, f[3] = v.w;
    }
};

/* ---------------------------------------------------------------- a piece of 32 keys */

/* Numbers of the 32 keys from `first` on as softmax takes them (see score_form), -inf if a row does
 * not attend to the key. */
template <typename C, int DIM, typename Q, typename K>
static __device__ __forceinline__ void
score_piece(const attn_args &a, const score_form &form, const lane_rows &r, const Q &q, K &k,
            const float *k_scale, uint32_t first, float (*x)[4])
{
    const uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
        x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0.0f;
    C::template scores<DIM>(q, k, x);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const uint32_t in_piece = 8 * n + 2 * t + c % 2, key = first + in_piece, i = c / 2;
            const bool seen = key >= r.lo[i] && key < r.hi[i];
            if constexpr (C::SCALED)
                x[n][c] *= k_scale[in_piece];
            x[n][c] = seen ? form.number(a, x[n][c], r.head[i], key, r.hi[i] - 1) : -INFINITY;
        }
}

static __device__ __forceinline__ void no_piece(float (*x)[4])
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
        x[n][0] = x[n][1] = x[n][2] = x[n][3] = -INFINITY;
}

/* The largest number that this lane has of row i in a piece; that the row's four lanes have. */
static __device__ __forceinline__ float lane_max(const float (*x)[4], int i)
{
    float m = fmaxf(x[0][2 * i], x[0][2 * i + 1]);
#pragma unroll
    for (int n = 1; n < KEYS / 8; n++)
        m = fmaxf(m, fmaxf(x[n][2 * i], x[n][2 * i + 1]));
    return m;
}
static __device__ __forceinline__ float piece_max(const float (*x)[4], int i)
{
    float m = lane_max(x, i);
    m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
    return fmaxf(m, __shfl_xor_sync(~0u, m, 2));
}

/* Converts numbers of row i to weights; this lane's sum of them. */
static __device__ __forceinline__ float weigh_piece(const score_form &form, float (*x)[4], int i,
                                                    float max)
{
    const float at = max == -INFINITY ? 0.0f : max;
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        x[n][2 * i] = form.weight(x[n][2 * i], at);
        x[n][2 * i + 1] = form.weight(x[n][2 * i + 1], at);
        sum += x[n][2 * i] + x[n][2 * i + 1];
    }
    return sum;
}

/* Weights of row i of 8 keys as an operand, times the values' scales. A masked key has weight 0,
 * whatever its scale is. */
template <typename C>
static __device__ __forceinline__ uint32_t pack_weights(const float (&x)[4], int i,
                                                        const float *v_scale, int n)
{
    float lo = x[2 * i], hi = x[2 * i + 1];
    if constexpr (C::SCALED) {
        const uint32_t key = 8 * n + threadIdx.x % 4 * 2;
        lo = lo == 0.0f ? 0.0f : lo * v_scale[key];
        hi = hi == 0.0f ? 0.0f : hi * v_scale[key + 1];
    }
    return C::Mma::pack(lo, hi);
}

/* ---------------------------------------------------------------- a segment in registers */

/* Converts the numbers of a segment to weights; its maxima, in log2, and sums. */
static __device__ __forceinline__ void weigh_rows(const score_form &form, float (*x)[4],
                                                  float (&max)[2], float (&sum)[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {                    /* rows g, g + 8 */
        float m = -INFINITY, l = 0.0f, each[PIECES]; /* short chains: fmaxf in any order */
#pragma unroll
        for (uint32_t c = 0; c < PIECES; c++)
            each[c] = lane_max(x + c * (KEYS / 8), i);
#pragma unroll
        for (uint32_t c = 0; c < PIECES; c++)
            m = fmaxf(m, each[c]);
        m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
        m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
        max[i] = form.max(m);
#pragma unroll
        for (uint32_t c = 0; c < PIECES; c++)
            l += weigh_piece(form, x + c * (KEYS / 8), i, max[i]);
        l += __shfl_xor_sync(~0u, l, 1);
        sum[i] = l + __shfl_xor_sync(~0u, l, 2);
    }
}
#endif
