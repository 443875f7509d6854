/* rows.cu - operations that go row by row. All are bound by memory; none is large in a decode step.
 */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/narrow.cuh"
#include "model-server/backend/cuda/kernels/norm.cuh"
#include "model-server/backend/cuda/kernels/stored.cuh"

enum { THREADS = NORM_THREADS, WARPS = NORM_WARPS };

/* ---------------------------------------------------------------- embedding */

/* grid: (rows); any number of columns */
static __global__ void __launch_bounds__(THREADS) embed_kernel(embed_args a)
{
    depend();
    uint32_t row = a.index[blockIdx.x] + a.shift;
    const bool in = row < a.w.rows;
    const float of_row = in ? row_scale(a.w, a.w.data, row) : 0.0f;
    float *y = a.y + (size_t)blockIdx.x * a.w.cols;
    for (uint32_t i = threadIdx.x; i < a.w.cols; i += THREADS) {
        float f = 0.0f;
        if (in)
            f = stored_at(a.w, a.w.data, row, i) * of_row;
        if (a.scale != 1.0f)
            f *= a.scale;
        y[i] = a.add ? y[i] + f : f;
    }
}

extern "C" cudaError_t embed_launch(const struct launch *l, const void *args)
{
    const embed_args *a = (const embed_args *)args;
    return launch(embed_kernel, a->rows, THREADS, 0, l->stream, l->overlap, *a);
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) give_kernel(give_args a)
{
    depend();
    const uint32_t from = a.which[blockIdx.x];
    if (from == GIVE_NONE)
        return;
    float *y = a.y + (size_t)blockIdx.x * a.n;
    const float *x = a.x + (size_t)from * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        y[i] = a.add ? y[i] + x[i] : x[i];
}

extern "C" cudaError_t give_launch(const struct launch *l, const void *args)
{
    const give_args *a = (const give_args *)args;
    return launch(give_kernel, a->rows, THREADS, 0, l->stream, l->overlap, *a);
}

/* ---------------------------------------------------------------- norms */

/* grid: (rows); any n */
static __global__ void __launch_bounds__(THREADS) norm_kernel(norm_args a)
{
    float *sums = dynamic_shared<float>();
    float *x = a.x + (size_t)blockIdx.x * a.n, *y = a.y + (size_t)blockIdx.x * a.n;
    const float *r = a.r + (a.r ? (size_t)blockIdx.x * a.n : 0);
    norm_part part;
    depend_start();
    if (!a.plain)
        part.load_weights(a);
    depend_wait();
    auto read = [&](uint32_t k) {
        float4 v = four_of(x, k, a.n);
        if (a.r) {
            const float4 add = four_of(r, k, a.n);
            v = float4{fmaf(a.scale, add.x, v.x), fmaf(a.scale, add.y, v.y),
                       fmaf(a.scale, add.z, v.z), fmaf(a.scale, add.w, v.w)};
            put_four(x, k, a.n, v);
        }
        return v;
    };
    auto again = [&](uint32_t k) { return four_of(x, k, a.n); };
    if (a.plain) {
        for (uint32_t k = 4 * threadIdx.x; k < a.n; k += NORM_STEP)
            read(k);
        return;
    }
    part.take(a, sums, read, again);
    part.give(a, a.narrow.to ? a.narrow.pitch : a.n, again, [&](uint32_t k, float4 f) {
        if (!a.narrow.alone)
            put_four(y, k, a.n, f);
        if (a.narrow.to)
            store_four(a.narrow, blockIdx.x, k, f);
    });
}

extern "C" cudaError_t norm_launch(const struct launch *l, const void *args)
{
    const norm_args *a = (const norm_args *)args;
    const uint32_t most = a->narrow.to && a->narrow.pitch > a->n ? a->narrow.pitch : a->n;
    return launch(norm_kernel, a->rows, norm_threads(most, 4), WARPS * sizeof(float), l->stream,
                  l->overlap, *a);
}

/* ---------------------------------------------------------------- one element at a time */

/* Blocks for n elements: grid-stride loops, at most 8 blocks on each of 132 multiprocessors. */
static uint32_t blocks_for(uint64_t n)
{
    uint64_t blocks = (n + THREADS - 1) / THREADS;
    return (uint32_t)(blocks < 1056 ? blocks : 1056);
}

static __global__ void __launch_bounds__(THREADS) act_kernel(act_args a)
{
    depend();
    uint64_t all = (uint64_t)a.rows * a.n, step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        const float *x = a.gated ? a.x + i + i / a.n * a.n : a.x + i;
        if (a.by)
            a.y[i] = math_gate(*x, a.by[i], (enum act)a.act);
        else
            a.y[i] =
                a.gated ? math_gate(*x, x[a.n], (enum act)a.act) : math_act(*x, (enum act)a.act);
    }
}

extern "C" cudaError_t act_launch(const struct launch *l, const void *args)
{
    const act_args *a = (const act_args *)args;
    return launch(act_kernel, blocks_for((uint64_t)a->rows * a->n), THREADS, 0, l->stream,
                  l->overlap, *a);
}

static __global__ void __launch_bounds__(THREADS) xielu_kernel(xielu_args a)
{
    depend();
    const uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += step) {
        const float v = a.x[i], e = math_exp(v < -1e-6f ? v : -1e-6f);
        a.x[i] = (v > 0.0f ? a.a * v * v : a.b * (e - 1.0f - v)) + 0.5f * v;
    }
}

extern "C" cudaError_t xielu_launch(const struct launch *l, const void *args)
{
    const xielu_args *a = (const xielu_args *)args;
    return launch(xielu_kernel, blocks_for(a->n), THREADS, 0, l->stream, l->overlap, *a);
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) squares_kernel(squares_args a)
{
    float *sums = dynamic_shared<float>();
    depend();
    const float *x = a.x + (size_t)blockIdx.x * a.stride;
    float first = 0.0f, second = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.a; i += THREADS)
        first = fmaf(x[i], x[i], first);
    for (uint32_t i = threadIdx.x; i < a.b; i += THREADS)
        second = fmaf(x[a.a + i], x[a.a + i], second);
    first = block_sum(first, sums);
    second = block_sum(second, sums);
    float *y = a.y + (size_t)blockIdx.x * SQUARES;
    if (threadIdx.x < SQUARES)
        y[threadIdx.x] = threadIdx.x == 0 ? first : threadIdx.x == 1 ? second : 0.0f;
}

extern "C" cudaError_t squares_launch(const struct launch *l, const void *args)
{
    const squares_args *a = (const squares_args *)args;
    return launch(squares_kernel, a->rows, THREADS, WARPS * sizeof(float), l->stream, l->overlap,
                  *a);
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) gate_kernel(gate_args a)
{
    depend();
    const float g = a.gate[blockIdx.x];
    const float s = a.softplus ? math_softplus(g) : 1.0f / (1.0f + math_exp(-g));
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        a.x[(size_t)blockIdx.x * a.n + i] *= s;
}

extern "C" cudaError_t gate_launch(const struct launch *l, const void *args)
{
    const gate_args *a = (const gate_args *)args;
    return launch(gate_kernel, a->rows, THREADS, 0, l->stream, l->overlap, *a);
}

static __global__ void __launch_bounds__(THREADS) scale_heads_kernel(scale_heads_args a)
{
    depend();
    const uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < a.all; i += step) {
        const uint64_t head = i / a.n;
        const uint32_t h = (uint32_t)(head % a.heads);
        a.x[i] *= fmaf(a.slope[h], a.by[head / a.heads], a.offset[h]);
    }
}

extern "C" cudaError_t scale_heads_launch(const struct launch *l, const void *args)
{
    const scale_heads_args *a = (const scale_heads_args *)args;
    return launch(scale_heads_kernel, blocks_for(a->all), THREADS, 0, l->stream, l->overlap, *a);
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) gather_kernel(gather_args a)
{
    depend();
    const float *x = a.x + (size_t)a.rows_of[blockIdx.x] * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        a.y[(size_t)blockIdx.x * a.n + i] = x[i];
}

extern "C" cudaError_t gather_launch(const struct launch *l, const void *args)
{
    const gather_args *a = (const gather_args *)args;
    return launch(gather_kernel, a->rows, THREADS, 0, l->stream, l->overlap, *a);
}

static __global__ void __launch_bounds__(THREADS) scale_kernel(scale_args a)
{
    depend();
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += step)
        a.x[i] = math_soft_cap(a.x[i], a.scale, a.cap);
}

extern "C" cudaError_t scale_launch(const struct launch *l, const void *args)
{
    const scale_args *a = (const scale_args *)args;
    return launch(scale_kernel, blocks_for(a->n), THREADS, 0, l->stream, l->overlap, *a);
}

static __global__ void __launch_bounds__(THREADS) clip_kernel(clip_args a)
{
    depend();
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < a.all; i += step) {
        const float x = a.x[i], low = a.low[i % a.n], high = a.high[i % a.n];
        a.y[i] = x < low ? low : x > high ? high : x; /* NaN stays */
    }
}

extern "C" cudaError_t clip_launch(const struct launch *l, const void *args)
{
    const clip_args *a = (const clip_args *)args;
    return launch(clip_kernel, blocks_for(a->all), THREADS, 0, l->stream, l->overlap, *a);
}

/* Pairs, because two 16-bit numbers are one store. NARROW_WGMMA: of 16 pairs, which are 4 x 4, the
 * transpose. */
static __global__ void __launch_bounds__(THREADS) narrow_kernel(narrow_args a)
{
    depend();
    uint32_t pairs = a.pitch / 2;
    uint64_t all = (uint64_t)a.rows * pairs, step = (uint64_t)gridDim.x * THREADS;
    uint32_t *y = (uint32_t *)a.y;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        uint32_t pair = (uint32_t)(i % pairs);
        if (a.order == NARROW_WGMMA)
            pair = pair / 16 * 16 + pair % 4 * 4 + pair % 16 / 4;
        if (a.order == NARROW_HALVES)
            pair = pair / 16 * 16 + pair % 16 / 4 * 2 + pair % 4 / 2 * 8 + pair % 2;
        if (a.order == NARROW_WGMMA_HALVES)
            pair = pair / 8 * 8 + pair % 4 * 2 + pair % 8 / 4;
        uint32_t k = pair * 2;
        const float *x = a.x + i / pairs * a.n;
        float lo = k < a.n ? x[k] : 0.0f, hi = k + 1 < a.n ? x[k + 1] : 0.0f;
        y[i] = a.dtype == DT_F16 ? F16::pack(lo, hi) : Bf16::pack(lo, hi);
    }
}

extern "C" cudaError_t narrow_launch(const struct launch *l, const void *args)
{
    const narrow_args *a = (const narrow_args *)args;
    return launch(narrow_kernel, blocks_for((uint64_t)a->rows * a->pitch / 2), THREADS, 0,
                  l->stream, l->overlap, *a);
}

/* grid: (rows). As with every quantised row: a number that is not finite makes its scale NaN. */
static __global__ void __launch_bounds__(THREADS) quantise_kernel(quantise_args a)
{
    uint32_t *tops = dynamic_shared<uint32_t>();
    depend();
    const float *x = a.x + (size_t)blockIdx.x * a.n;
    uint32_t most = 0; /* as integers: NaN is the greatest of all */
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        most = max(most, __float_as_uint(x[i]) & 0x7fffffff);
    most = warp_fold(most, [](uint32_t a, uint32_t b) { return max(a, b); });
    if (threadIdx.x % 32 == 0)
        tops[threadIdx.x / 32] = most;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        most = max(most, tops[i]);
    float top = __uint_as_float(most), to_int = 0.0f, scale = 0.0f;
    if (most >= 0x7f800000)
        scale = __uint_as_float(0x7fc00000);
    else if (top >= 0x1p-120f)
        scale = top / 127.0f, to_int = 127.0f / top;
    if (threadIdx.x == 0)
        a.scale[blockIdx.x] = scale;
    int8_t *y = a.y + (size_t)blockIdx.x * a.pitch;
    for (uint32_t i = threadIdx.x; i < a.pitch; i += THREADS)
        y[2 * narrow_place(i / 2, a.order) + i % 2] =
            i < a.n && to_int > 0.0f ? (int8_t)rintf(x[i] * to_int) : 0;
}

extern "C" cudaError_t quantise_launch(const struct launch *l, const void *args)
{
    const quantise_args *a = (const quantise_args *)args;
    return launch(quantise_kernel, a->rows, THREADS, WARPS * sizeof(uint32_t), l->stream,
                  l->overlap, *a);
}

/* What the ranks have, added up in their order. */
static __global__ void __launch_bounds__(THREADS) rank_sum_kernel(rank_sum_args a)
{
    depend();
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += step) {
        float own = a.own[i], sum = a.rank ? a.x[i] : own;
        for (uint32_t r = 1; r < a.world; r++)
            sum += r == a.rank ? own : a.x[r * a.n + i];
        a.y[i] = sum;
    }
}

extern "C" cudaError_t rank_sum_launch(const struct launch *l, const void *args)
{
    const rank_sum_args *a = (const rank_sum_args *)args;
    return launch(rank_sum_kernel, blocks_for(a->n), THREADS, 0, l->stream, l->overlap, *a);
}
