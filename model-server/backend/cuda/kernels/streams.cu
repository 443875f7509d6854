/* streams.cu - parallel residual streams (AltUp, arXiv 2301.13310), rows of equal magnitude, and
 * activations cut off by their mean and deviation, two attentions in one softmax. One block per
 * row; all are bound by memory. */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/norm.cuh"
#include "model-server/backend/cuda/kernels/numbers.cuh"

enum { THREADS = NORM_THREADS, WARPS = NORM_WARPS };

static __device__ __forceinline__ void predict(const altup_args &a, uint32_t i, size_t each)
{
    const uint32_t k = a.streams_n;
    const float *coefs = a.coefs + (size_t)blockIdx.x * k * k;
    float *at = a.streams + (size_t)blockIdx.x * a.n + i, was[ALTUP_MOST];
#pragma unroll
    for (uint32_t s = 0; s < ALTUP_MOST; s++)
        was[s] = s < k ? at[s * each] : 0.0f;
    for (uint32_t s = 0; s < k; s++) {
        float sum = 0.0f, own = 0.0f;
#pragma unroll
        for (uint32_t from = 0; from < ALTUP_MOST; from++)
            if (from < k) {
                sum = fmaf(coefs[s * k + from], was[from], sum);
                own = from == s ? was[from] : own;
            }
        at[s * each] = own + sum;
    }
    a.x[(size_t)blockIdx.x * a.n + i] = at[a.active * each];
}

static __device__ __forceinline__ void correct(const altup_args &a, uint32_t i, size_t each)
{
    const float *coefs = a.coefs + (size_t)blockIdx.x * a.streams_n;
    float *at = a.streams + (size_t)blockIdx.x * a.n + i;
    float *x = a.x + (size_t)blockIdx.x * a.n + i;
    const float by = *x - at[a.active * each];
    for (uint32_t s = 0; s < a.streams_n; s++)
        at[s * each] = fmaf(by, 1.0f + coefs[s], at[s * each]);
    *x = at[a.active * each];
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) altup_kernel(altup_args a)
{
    depend();
    const size_t each = (size_t)a.rows * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
        const size_t at = (size_t)blockIdx.x * a.n + i;
        if (a.kind == ALTUP_PREDICT)
            predict(a, i, each);
        else if (a.kind == ALTUP_CORRECT)
            correct(a, i, each);
        else
            for (uint32_t s = 1; s < a.streams_n; s++)
                a.streams[s * each + at] += a.x[at];
    }
}

extern "C" cudaError_t altup_launch(const struct launch *l, const void *args)
{
    const altup_args *a = (const altup_args *)args;
    return launch(altup_kernel, a->rows, THREADS, 0, l->stream, l->overlap, *a);
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) match_kernel(match_args a)
{
    float *sums = dynamic_shared<float>();
    depend();
    const float *x = a.x + (size_t)blockIdx.x * a.n, *like = a.like + (size_t)blockIdx.x * a.n;
    float *y = a.y + (size_t)blockIdx.x * a.n, own = 0.0f, other = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
        own = fmaf(x[i], x[i], own);
        other = fmaf(like[i], like[i], other);
    }
    own = block_sum(own, sums) / (float)a.n;
    other = block_sum(other, sums) / (float)a.n;
    const float by = sqrtf(other) / sqrtf(own > 1e-5f ? own : 1e-5f);
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        y[i] = (a.add ? y[i] : 0.0f) + x[i] * by;
}

extern "C" cudaError_t match_launch(const struct launch *l, const void *args)
{
    const match_args *a = (const match_args *)args;
    return launch(match_kernel, a->rows, THREADS, WARPS * sizeof(float), l->stream, l->overlap, *a);
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) dots_kernel(dots_args a)
{
    float *sums = dynamic_shared<float>();
    depend();
    const float *x = a.a + (size_t)blockIdx.x * a.n, *y = a.b + (size_t)blockIdx.x * a.n;
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        sum = fmaf(x[i], y[i], sum);
    sum = block_sum(sum, sums) * a.scale;
    if (threadIdx.x == 0)
        a.y[blockIdx.x] = sum == 0.0f ? 0.0f : copysignf(sqrtf(fmaxf(fabsf(sum), 1e-6f)), sum);
}

extern "C" cudaError_t dots_launch(const struct launch *l, const void *args)
{
    const dots_args *a = (const dots_args *)args;
    return launch(dots_kernel, a->rows, THREADS, WARPS * sizeof(float), l->stream, l->overlap, *a);
}

/* The factor of each row and its score, in shared memory behind the sums of warps. */
static __device__ void score_rows(const blend_args &a, const float *rows, float *sums, float *by,
                                  float *score)
{
    for (uint32_t i = 0; i < a.at; i++) {
        const float *row = rows + (size_t)i * a.n;
        float square = 0.0f, product = 0.0f;
        for (uint32_t k = threadIdx.x; k < a.n; k += THREADS) {
            square = fmaf(row[k], row[k], square);
            product = fmaf(row[k], a.query[k], product);
        }
        square = block_sum(square, sums);
        product = block_sum(product, sums);
        if (threadIdx.x == 0) {
            const float share = 1.0f / sqrtf(square / (float)a.n + a.eps);
            score[i] = product * share / sqrtf((float)a.n);
            by[i] = a.raw ? 1.0f : share;
        }
    }
    __syncthreads();
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) blend_kernel(blend_args a)
{
    float *sums = dynamic_shared<float>(), *by = sums + WARPS, *score = by + BLEND_MOST;
    depend();
    float *x = a.x + (size_t)blockIdx.x * a.n;
    float *rows = a.streams + (size_t)blockIdx.x * a.slots * a.n;
    float *own = rows + (size_t)a.at * a.n;
    if (a.kind != BLEND_READ) {
        for (uint32_t k = threadIdx.x; k < a.n; k += THREADS)
            own[k] = a.kind == BLEND_SET ? x[k] : own[k] + x[k];
        return;
    }
    score_rows(a, rows, sums, by, score);
    float most = -INFINITY, sum = 0.0f;
    for (uint32_t i = 0; i < a.at; i++)
        most = fmaxf(most, score[i]);
    for (uint32_t i = 0; i < a.at; i++)
        sum += math_exp(score[i] - most);
    for (uint32_t k = threadIdx.x; k < a.n; k += THREADS) {
        float y = 0.0f;
        for (uint32_t i = 0; i < a.at; i++)
            y = fmaf(math_exp(score[i] - most) / sum * by[i], rows[(size_t)i * a.n + k], y);
        x[k] = y;
    }
}

extern "C" cudaError_t blend_launch(const struct launch *l, const void *args)
{
    const blend_args *a = (const blend_args *)args;
    return launch(blend_kernel, a->rows, THREADS, (WARPS + 2 * BLEND_MOST) * sizeof(float),
                  l->stream, l->overlap, *a);
}

/* grid: (rows, heads) */
static __global__ void __launch_bounds__(THREADS) shorten_kernel(shorten_args a)
{
    float *sums = dynamic_shared<float>();
    depend();
    float *x = a.x + (size_t)blockIdx.x * a.stride + (size_t)blockIdx.y * a.n;
    const float *by = a.by ? a.by + (size_t)blockIdx.y * a.n : nullptr;
    float square = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
        x[i] *= by ? by[i] : 1.0f;
        square = fmaf(x[i], x[i], square);
    }
    const float share = a.most / (sqrtf(block_sum(square, sums)) + 1e-6f);
    for (uint32_t i = threadIdx.x; share < 1.0f && i < a.n; i += THREADS)
        x[i] *= share;
}

extern "C" cudaError_t shorten_launch(const struct launch *l, const void *args)
{
    const shorten_args *a = (const shorten_args *)args;
    return launch(shorten_kernel, dim3(a->rows, a->heads), THREADS, WARPS * sizeof(float),
                  l->stream, l->overlap, *a);
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) beside_kernel(beside_args a)
{
    depend();
    const uint32_t wide = a.b ? 2 * a.n : a.n;
    const float *p = a.a + (size_t)blockIdx.x * a.n;
    const float *q = a.b ? a.b + (size_t)blockIdx.x * a.n : nullptr;
    float *y = a.y + (size_t)blockIdx.x * wide;
    for (uint32_t i = threadIdx.x; i < wide; i += THREADS)
        y[i] = i < a.n ? p[i] : q[i - a.n];
}

extern "C" cudaError_t beside_launch(const struct launch *l, const void *args)
{
    const beside_args *a = (const beside_args *)args;
    return launch(beside_kernel, a->rows, THREADS, 0, l->stream, l->overlap, *a);
}

/* grid: (rows). The largest scores are in log2. */
static __global__ void __launch_bounds__(THREADS) merge_kernel(merge_args a)
{
    depend();
    const float2 of_y = ((const float2 *)a.y_sums)[blockIdx.x];
    const float2 of_x = ((const float2 *)a.x_sums)[blockIdx.x];
    const float max = fmaxf(of_y.x, of_x.x);
    const float by_y = of_y.y * exp2_fast(of_y.x - max), by_x = of_x.y * exp2_fast(of_x.x - max);
    const float *x = a.x + (size_t)blockIdx.x * a.n;
    float *y = a.y + (size_t)blockIdx.x * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        y[i] = fmaf(x[i], by_x, y[i] * by_y) / (by_y + by_x);
}

extern "C" cudaError_t merge_launch(const struct launch *l, const void *args)
{
    const merge_args *a = (const merge_args *)args;
    return launch(merge_kernel, a->rows, THREADS, 0, l->stream, l->overlap, *a);
}

/* The largest of all threads' numbers; `all`: WARPS floats of shared memory. */
static __device__ __forceinline__ float block_max(float v, float *all)
{
    v = warp_fold(v, [](float a, float b) { return fmaxf(a, b); });
    if (threadIdx.x % 32 == 0)
        all[threadIdx.x / 32] = v;
    __syncthreads();
    v = all[0];
    for (int i = 1; i < WARPS; i++)
        v = fmaxf(v, all[i]);
    return v;
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) softmax_kernel(softmax_args a)
{
    float *shared = dynamic_shared<float>();
    depend();
    float *x = a.x + (size_t)blockIdx.x * a.n, most = -INFINITY, sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        most = fmaxf(most, x[i]);
    most = block_max(most, shared);
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        sum += x[i] = expf(x[i] - most);
    const float by = 1.0f / block_sum(sum, shared);
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        x[i] *= by;
}

extern "C" cudaError_t softmax_launch(const struct launch *l, const void *args)
{
    const softmax_args *a = (const softmax_args *)args;
    return launch(softmax_kernel, a->rows, THREADS, WARPS * sizeof(float), l->stream, l->overlap,
                  *a);
}

/* grid: (tokens, half / THREADS). Each number is two chains over the tokens in ascending order. */
static __global__ void __launch_bounds__(THREADS) fourier_kernel(fourier_args a)
{
    depend();
    const uint32_t k = blockIdx.y * THREADS + threadIdx.x;
    const span_view s = a.spans[a.span_of[blockIdx.x]];
    const uint32_t t = blockIdx.x - s.first;
    if (k >= a.half)
        return;
    const float *x = a.x + (size_t)s.first * 2 * a.half + k;
    float even = 0.0f, odd = 0.0f;
    for (uint32_t i = 0, at = 0; i < s.n; i++, x += 2 * a.half) {
        const int near = at > s.n / 2 ? (int)at - (int)s.n : (int)at; /* half a turn at most */
        const float half_turns = 2.0f * (float)near / (float)s.n; /* cosf() would need a stack */
        even = fmaf(x[0], cospif(half_turns), even);
        odd = fmaf(x[a.half], sinpif(half_turns), odd);
        at += t;
        at -= at >= s.n ? s.n : 0;
    }
    float *y = a.y + (size_t)blockIdx.x * a.n;
    y[k] = even + odd;
    if (k && a.n - k >= a.half)
        y[a.n - k] = even - odd;
}

extern "C" cudaError_t fourier_launch(const struct launch *l, const void *args)
{
    const fourier_args *a = (const fourier_args *)args;
    return launch(fourier_kernel, dim3(a->tokens, (a->half + THREADS - 1) / THREADS), THREADS, 0,
                  l->stream, l->overlap, *a);
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) moments_kernel(moments_args a)
{
    float *sums = dynamic_shared<float>();
    depend();
    const float *x = a.x + (size_t)blockIdx.x * a.stride;
    float sum = 0.0f, squares = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
        sum += x[i];
        squares = fmaf(x[i], x[i], squares);
    }
    sum = block_sum(sum, sums);
    squares = block_sum(squares, sums);
    float *y = a.y + (size_t)blockIdx.x * SQUARES;
    if (threadIdx.x < SQUARES)
        y[threadIdx.x] = threadIdx.x == 0 ? sum : threadIdx.x == 1 ? squares : 0.0f;
}

extern "C" cudaError_t moments_launch(const struct launch *l, const void *args)
{
    const moments_args *a = (const moments_args *)args;
    return launch(moments_kernel, a->rows, THREADS, WARPS * sizeof(float), l->stream, l->overlap,
                  *a);
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) sparsify_kernel(sparsify_args a)
{
    depend();
    const float *m = a.moments + (size_t)blockIdx.x * SQUARES;
    const float mean = m[0] / (float)a.of, variance = m[1] / (float)a.of - mean * mean;
    const float least = mean + a.deviations * sqrtf(variance > 0.0f ? variance : 0.0f);
    float *x = a.x + (size_t)blockIdx.x * a.stride;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) { /* NaN stays */
        const float above = x[i] - least;
        x[i] = above < 0.0f ? 0.0f : above;
    }
}

extern "C" cudaError_t sparsify_launch(const struct launch *l, const void *args)
{
    const sparsify_args *a = (const sparsify_args *)args;
    return launch(sparsify_kernel, a->rows, THREADS, 0, l->stream, l->overlap, *a);
}
