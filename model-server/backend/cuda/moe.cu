/* moe.cu - mixture of experts: each row's best experts, the pairs (row, expert) sorted by expert,
 * and the sum of the experts' results in the order of their numbers. Everything stays on the
 * device, so that a step with experts can be captured. The experts' products: linear_*.cu with
 * `table`. */
#include "model-server/backend/cuda/device.cuh"
#include "model-server/backend/cuda/kernels.h"
#include "model-server/backend/cuda/numbers.cuh"
#include <float.h>

/* Index of the largest of c[0 .. n), ties go to the lowest, the same in all lanes. Taken entries
 * are -INFINITY, and at least one is not taken. */
static __device__ uint32_t warp_best(const float *c, uint32_t n, uint32_t lane)
{
    float best = -INFINITY;
    uint32_t at = n;
    for (uint32_t i = lane; i < n; i += 32)
        if (c[i] > best)
            best = c[i], at = i;
    for (int i = 16; i; i /= 2) {
        float b = __shfl_xor_sync(~0u, best, i);
        uint32_t j = __shfl_xor_sync(~0u, at, i);
        if (b > best || (b == best && j < at))
            best = b, at = j;
    }
    return at;
}

/* Converts logits to scores p, and returns the divisor of the scores, as the CPU does. */
static __device__ float score_row(const route_args &a, const float *logits, float *p, uint32_t lane)
{
    float max = logits[0], sum = 0.0f;
    for (uint32_t i = 0; i < a.n_experts; i++)
        max = logits[i] > max ? logits[i] : max;
    for (uint32_t i = lane; i < a.n_experts; i += 32) {
        float e = a.sigmoid ? 1.0f / (1.0f + math_exp(-logits[i])) : math_exp(logits[i] - max);
        /* with NaN no expert is selected, and 0 / 0 makes the result NaN */
        p[i] = e >= 0.0f ? e : 0.0f;
    }
    __syncwarp();
    if (a.sigmoid)
        return 1.0f;
    for (uint32_t i = 0; i < a.n_experts; i++) /* in order: the same sum as on the CPU */
        sum += p[i];
    if (!a.select_bias)
        return sum;
    __syncwarp();
    for (uint32_t i = lane; i < a.n_experts; i += 32)
        p[i] /= sum;
    return 1.0f;
}

/* Marks experts outside the best groups as taken. */
static __device__ void close_groups(const route_args &a, float *choice, float *group, uint32_t lane)
{
    const uint32_t n = a.n_experts / a.n_groups;
    for (uint32_t g = lane; g < a.n_groups; g += 32) {
        float first = -INFINITY, second = -INFINITY;
        for (uint32_t i = g * n; i < (g + 1) * n; i++) {
            second = choice[i] > first ? first : choice[i] > second ? choice[i] : second;
            first = choice[i] > first ? choice[i] : first;
        }
        group[g] = fmaxf(a.group_pairs ? first + second : first, -FLT_MAX);
    }
    __syncwarp();
    for (uint32_t k = 0; k < a.top_groups; k++) {
        const uint32_t best = warp_best(group, a.n_groups, lane);
        __syncwarp(); /* all have read it */
        if (lane == 0)
            group[best] = -INFINITY;
        __syncwarp();
    }
    for (uint32_t i = lane; i < a.n_experts; i += 32)
        if (group[i / n] != -INFINITY)
            choice[i] = -INFINITY;
    __syncwarp();
}

/* The probability of the best logit in a softmax over the logits close to it, the same in all
 * lanes. */
static __device__ float sparse_share(const route_args &a, const float *l, const float *open,
                                     uint32_t best)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < a.n_experts; i++) {
        const float size = fabsf(l[i]), by = size > l[best] ? size : l[best];
        if (open[i] != -INFINITY && !((l[best] - l[i]) / by > 2.0f * a.jitter))
            sum += math_exp(l[i] - l[best]);
    }
    return 1.0f / sum;
}

/* SparseMixer: see struct moe. p becomes a row's weights, 0 for experts that are not selected. */
static __device__ void route_sparse(const route_args &a, const float *logits, float *p,
                                    float *choice, uint32_t lane)
{
    for (uint32_t i = lane; i < a.n_experts; i += 32)
        choice[i] = fmaxf(logits[i], -FLT_MAX), p[i] = 0.0f;
    __syncwarp();
    for (uint32_t k = 0; k < a.top_k; k++) {
        const uint32_t best = warp_best(choice, a.n_experts, lane);
        const float share = sparse_share(a, logits, choice, best);
        __syncwarp(); /* all have read it */
        if (lane == 0)
            p[best] = copysignf(share, -1.0f), choice[best] = -INFINITY;
        __syncwarp();
    }
}

/* Stores the selected experts, which have a negative sign, in the order of their numbers. */
static __device__ void leave_choices(const route_args &a, const float *p, float by)
{
    uint32_t *expert = a.expert + (size_t)blockIdx.x * a.top_k;
    float *weight = a.weight + (size_t)blockIdx.x * a.top_k;
    for (uint32_t i = 0, k = 0; i < a.n_experts && k < a.top_k; i++)
        if (signbit(p[i])) {
            const float w = fabsf(p[i]) / by * a.scale;
            expert[k] = i;
            weight[k++] = a.expert_scale ? w * a.expert_scale[i] : w;
        }
}

/* One warp per row; grid: (rows). Shared memory: the row's scores, its choices, its groups. The
 * choices are stored in the order of the experts' numbers, in which they are summed. */
static __global__ void __launch_bounds__(32) route_kernel(route_args a)
{
    float *p = dynamic_shared<float>(), *choice = p + a.n_experts;
    depend();
    const uint32_t lane = threadIdx.x;
    const float *logits = a.logits + (size_t)blockIdx.x * a.n_experts;
    float kept = 0.0f;
    if (a.sparse) {
        route_sparse(a, logits, p, choice, lane);
        if (lane == 0)
            leave_choices(a, p, 1.0f);
        return;
    }
    const float sum = score_row(a, logits, p, lane);
    __syncwarp();
    for (uint32_t i = lane; i < a.n_experts; i += 32)
        choice[i] = fmaxf(a.select_bias ? p[i] + a.select_bias[i] : p[i], -FLT_MAX);
    __syncwarp();
    if (a.n_groups > 1)
        close_groups(a, choice, choice + a.n_experts, lane);
    for (uint32_t k = 0; k < a.top_k; k++) {
        const uint32_t best = warp_best(choice, a.n_experts, lane);
        const float v = p[best];
        kept += v;
        __syncwarp(); /* all have read it */
        if (lane == 0)
            p[best] = copysignf(v, -1.0f), choice[best] = -INFINITY;
        __syncwarp();
    }
    if (lane == 0)
        leave_choices(a, p, a.renormalise ? kept : sum);
}

extern "C" cudaError_t route_launch(const struct launch *l, const void *args)
{
    const route_args *a = (const route_args *)args;
    return launch(route_kernel, a->rows, 32, (2 * a->n_experts + a->n_groups) * sizeof(float),
                  l->stream, l->overlap, *a);
}

/* One block. A thread has one expert at a time and iterates over all pairs. Pairs are few
 * compared with the products that follow, and their order within an expert is kept. */
static __global__ void __launch_bounds__(1024) group_kernel(group_args a)
{
    depend();
    for (uint32_t e = threadIdx.x; e <= a.n_experts; e += blockDim.x) {
        uint32_t before = 0;
        for (uint32_t i = 0; i < a.pairs; i++)
            before += a.expert[i] < e;
        a.begin[e] = before;
        for (uint32_t i = 0; i < a.pairs; i++)
            if (a.expert[i] == e)
                a.list[before++] = i;
    }
}

extern "C" cudaError_t group_launch(const struct launch *l, const void *args)
{
    const group_args *a = (const group_args *)args;
    uint32_t threads = a->n_experts + 1 < 1024 ? a->n_experts + 1 : 1024;
    return launch(group_kernel, 1, threads, 0, l->stream, l->overlap, *a);
}

/* grid: (pairs) */
static __global__ void __launch_bounds__(256) expert_bias_kernel(expert_bias_args a)
{
    depend();
    const float *bias = a.bias + (size_t)a.expert[blockIdx.x] * a.n;
    float *y = a.y + (size_t)blockIdx.x * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += 256)
        y[i] += bias[i];
}

extern "C" cudaError_t expert_bias_launch(const struct launch *l, const void *args)
{
    const expert_bias_args *a = (const expert_bias_args *)args;
    return launch(expert_bias_kernel, a->pairs, 256, 0, l->stream, l->overlap, *a);
}

/* grid: (rows) */
static __global__ void __launch_bounds__(256) mix_kernel(mix_args a)
{
    depend();
    const float *w = a.weight + (size_t)blockIdx.x * a.top_k;
    const float *x = a.x + (size_t)blockIdx.x * a.top_k * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += 256) {
        float sum = 0.0f;
        for (uint32_t k = 0; k < a.top_k; k++)
            sum = fmaf(a.plain ? 1.0f : w[k], x[(size_t)k * a.n + i], sum);
        a.y[(size_t)blockIdx.x * a.n + i] = sum;
    }
}

extern "C" cudaError_t mix_launch(const struct launch *l, const void *args)
{
    const mix_args *a = (const mix_args *)args;
    return launch(mix_kernel, a->rows, 256, 0, l->stream, l->overlap, *a);
}

static __global__ void __launch_bounds__(256) heads_kernel(heads_args a)
{
    depend();
    const uint32_t all = a.rows * a.heads;
    for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < all; i += gridDim.x * 256)
        a.list[i] = i % a.rows * a.heads + i / a.rows;
    for (uint32_t h = blockIdx.x * 256 + threadIdx.x; h <= a.heads; h += gridDim.x * 256)
        a.begin[h] = h * a.rows;
}

extern "C" cudaError_t heads_launch(const struct launch *l, const void *args)
{
    const heads_args *a = (const heads_args *)args;
    const uint32_t blocks = (a->rows * a->heads + 255) / 256;
    return launch(heads_kernel, blocks < 128 ? blocks : 128, 256, 0, l->stream, l->overlap, *a);
}

/* grid: (pairs) */
static __global__ void __launch_bounds__(256) pair_scale_kernel(pair_scale_args a)
{
    depend();
    const float w = a.weight[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < a.n; i += 256)
        a.y[(size_t)blockIdx.x * a.n + i] *= w;
}

extern "C" cudaError_t pair_scale_launch(const struct launch *l, const void *args)
{
    const pair_scale_args *a = (const pair_scale_args *)args;
    return launch(pair_scale_kernel, a->pairs, 256, 0, l->stream, l->overlap, *a);
}
