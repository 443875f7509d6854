/* moe.cu - mixture of experts: each row's best experts, the pairs (row, expert) sorted by expert,
 * and the sum of the experts' results in the order of their numbers. Everything stays on the
 * device, so that a step with experts can be captured. The experts' products: linear_*.cu with
 * `table`. */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/numbers.cuh"
#include <float.h>

struct choice {
    float value;
    uint32_t at;
};
static __device__ __forceinline__ choice other_lane(choice c, int mask)
{
    return choice{other_lane(c.value, mask), other_lane(c.at, mask)};
}

/* Index of the largest of c[0 .. n), ties go to the lowest, the same in all lanes. Taken entries
 * are -INFINITY, and at least one is not taken. */
static __device__ uint32_t warp_best(const float *c, uint32_t n, uint32_t lane)
{
    choice best = {-INFINITY, n};
    for (uint32_t i = lane; i < n; i += 32)
        if (c[i] > best.value)
            best = choice{c[i], i};
    return warp_fold(best,
                     [](choice a, choice b) {
                         return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a;
                     })
        .at;
}

/* Converts logits to scores p, and returns the divisor of the scores, as the CPU does. */
static __device__ float score_row(const route_args &a, const float *logits, float *p, uint32_t lane)
{
    float max = -INFINITY, sum = 0.0f;
    for (uint32_t i = lane; i < a.n_experts; i += 32)
        max = logits[i] > max ? logits[i] : max;
    max = warp_fold(max, [](float a, float b) { return b > a ? b : a; });
    max = logits[0] == logits[0] ? max : logits[0]; /* the greatest from the first on: NaN stays */
    for (uint32_t i = lane; i < a.n_experts; i += 32) {
        float e = a.score == MOE_SIGMOID         ? 1.0f / (1.0f + math_exp(-logits[i]))
                  : a.score == MOE_SQRT_SOFTPLUS ? sqrtf(math_softplus(logits[i]))
                                                 : math_exp(logits[i] - max);
        /* with NaN no expert is selected, and 0 / 0 makes the result NaN */
        p[i] = e >= 0.0f ? e : 0.0f;
    }
    __syncwarp();
    if (a.score != MOE_SOFTMAX)
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

/* Marks the experts of the row's token: moe.by_id. Returns the sum of their scores. */
static __device__ float choose_by_id(const route_args &a, uint32_t row, float *p, uint32_t lane)
{
    const uint32_t id = a.ids[row] < a.n_ids ? a.ids[row] : 0;
    const uint32_t *of = a.by_id + (size_t)id * a.top_k;
    float kept = 0.0f;
    for (uint32_t k = 0; k < a.top_k; k++)
        kept += p[of[k]];
    __syncwarp(); /* all have read them */
    for (uint32_t k = lane; k < a.top_k; k += 32)
        p[of[k]] = copysignf(p[of[k]], -1.0f);
    __syncwarp();
    return kept;
}

static __device__ __forceinline__ uint32_t lanes_below(uint32_t lane) { return (1u << lane) - 1; }

/* Stores the selected experts, which have a negative sign, in the order of their numbers. */
static __device__ void leave_choices(const route_args &a, uint32_t row, const float *p, float by,
                                     uint32_t lane)
{
    uint32_t *expert = a.expert + (size_t)row * a.top_k;
    float *weight = a.weight + (size_t)row * a.top_k;
    for (uint32_t first = 0, taken = 0; first < a.n_experts; first += 32) {
        const uint32_t i = first + lane;
        const bool mine = i < a.n_experts && signbit(p[i]);
        const uint32_t all = __ballot_sync(~0u, mine), k = taken + __popc(all & lanes_below(lane));
        taken += __popc(all);
        if (mine && k < a.top_k) {
            const float w = fabsf(p[i]) / by * a.scale;
            expert[k] = i;
            weight[k] = a.expert_scale ? w * a.expert_scale[i] : w;
        }
    }
}

/* Chooses the experts of a row; `p`: route_floats() of shared memory. */
static __device__ void route_row(const route_args &a, uint32_t row, float *p, uint32_t lane)
{
    float *choice = p + a.n_experts, kept = 0.0f;
    const float *logits = a.logits + (size_t)row * a.n_experts;
    if (a.score == MOE_SPARSEMIXER) {
        route_sparse(a, logits, p, choice, lane);
        leave_choices(a, row, p, 1.0f, lane);
        return;
    }
    const float sum = score_row(a, logits, p, lane);
    __syncwarp();
    if (a.by_id) {
        const float of = choose_by_id(a, row, p, lane);
        leave_choices(a, row, p, a.renormalise ? of : sum, lane);
        return;
    }
    for (uint32_t i = lane; i < a.n_experts; i += 32) {
        const float by = a.select_logits ? logits[i] : p[i];
        choice[i] = fmaxf(a.select_bias ? by + a.select_bias[i] : by, -FLT_MAX);
    }
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
    leave_choices(a, row, p, a.renormalise ? kept : sum, lane);
}

/* A row's scores, its choices, its groups. */
static __host__ __device__ uint32_t route_floats(const route_args &a)
{
    return 2 * a.n_experts + a.n_groups;
}

/* ---------------------------------------------------------------- pairs by expert */

enum { GROUP_WARPS = 32, GROUP_WORDS = 11 << 10 /* of 48 KiB */ };

/* Warps among which pairs are divided, and the pairs of each: a multiple of 32. */
static __host__ __device__ uint32_t group_warps(const group_args &a)
{
    const uint32_t n = (a.pairs + 31) / 32, most = GROUP_WORDS / (a.n_experts + 1);
    const uint32_t warps = most < GROUP_WARPS ? most : GROUP_WARPS;
    return n < warps ? n : warps ? warps : 1;
}
static __device__ uint32_t group_share(const group_args &a)
{
    const uint32_t n = group_warps(a);
    return ((a.pairs + n - 1) / n + 31) / 32 * 32;
}
/* [warps][n_experts + 1] counts, the last of them of missing pairs and of experts on other ranks;
 * [n_experts] totals */
static __host__ __device__ uint32_t group_words(const group_args &a)
{
    return group_warps(a) * (a.n_experts + 1) + a.n_experts;
}

/* Counts the pairs of each expert in this warp's share: counts[e] += ... With `place` counts[e] is
 * the place of the next pair, and pairs are stored. */
static __device__ void group_share_of(const group_args &a, uint32_t *counts, bool place)
{
    const uint32_t lane = threadIdx.x % 32, share = group_share(a);
    const uint32_t begin = threadIdx.x / 32 * share;
    const uint32_t end = begin + share < a.pairs ? begin + share : a.pairs;
    for (uint32_t first = begin; first < end; first += 32) {
        const uint32_t i = first + lane, chosen = i < end ? a.expert[i] : a.n_experts;
        const uint32_t e = chosen - a.first < a.here ? chosen : a.n_experts;
        const uint32_t same = __match_any_sync(~0u, e), before = __popc(same & lanes_below(lane));
        if (place && e < a.n_experts)
            a.list[counts[e] + before] = i;
        __syncwarp();
        if (before == 0)
            counts[e] += __popc(same);
        __syncwarp();
    }
}

/* Sum of the values of lower lanes; *all: of all lanes. */
static __device__ uint32_t sum_below(uint32_t v, uint32_t lane, uint32_t *all)
{
    uint32_t below = 0, sum = v;
    for (uint32_t i = 1; i < 32; i *= 2) {
        const uint32_t other = __shfl_xor_sync(~0u, sum, i);
        below += lane & i ? other : 0;
        sum += other;
    }
    *all = sum;
    return below;
}

/* One warp: begin and jobs; totals[e] becomes begin[e]. */
static __device__ void group_jobs(const group_args &a, uint32_t *totals)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t begin = 0, jobs = 0;
    for (uint32_t first = 0; first < a.n_experts; first += 32) {
        const uint32_t e = first + lane, n = e < a.n_experts ? totals[e] : 0;
        const uint32_t tiles = n / a.tile + (n % a.tile != 0);
        uint32_t all, all_tiles;
        const uint32_t at = begin + sum_below(n, lane, &all);
        const uint32_t job = jobs + sum_below(tiles, lane, &all_tiles);
        if (e < a.n_experts)
            totals[e] = a.begin[e] = at;
        for (uint32_t i = 0; i < tiles; i++)
            a.jobs[job + i] = expert_job{e, at, n, job};
        begin += all, jobs += all_tiles;
    }
    if (lane == 0)
        a.begin[a.n_experts] = begin, a.begin[a.n_experts + 1] = jobs;
}

/* All threads of a block, of which there are at least group_warps(); `counts`: group_words(). */
static __device__ void group_pairs(const group_args &a, uint32_t *counts)
{
    const uint32_t warps = group_warps(a), each = a.n_experts + 1, warp = threadIdx.x / 32;
    uint32_t *totals = counts + warps * each;
    for (uint32_t i = threadIdx.x; i < warps * each; i += blockDim.x)
        counts[i] = 0;
    __syncthreads();
    if (warp < warps)
        group_share_of(a, counts + warp * each, false);
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < a.n_experts; e += blockDim.x) {
        uint32_t sum = 0;
        for (uint32_t w = 0; w < warps; w++) {
            const uint32_t n = counts[w * each + e];
            counts[w * each + e] = sum;
            sum += n;
        }
        totals[e] = sum;
    }
    __syncthreads();
    if (warp == 0)
        group_jobs(a, totals);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < warps * a.n_experts; i += blockDim.x)
        counts[i / a.n_experts * each + i % a.n_experts] += totals[i % a.n_experts];
    __syncthreads();
    if (warp < warps)
        group_share_of(a, counts + warp * each, true);
}

static __global__ void __launch_bounds__(GROUP_WARPS * 32) group_kernel(group_args a)
{
    depend();
    group_pairs(a, dynamic_shared<uint32_t>());
}

extern "C" cudaError_t group_launch(const struct launch *l, const void *args)
{
    const group_args *a = (const group_args *)args;
    return launch(group_kernel, 1, 32 * group_warps(*a), group_words(*a) * sizeof(uint32_t),
                  l->stream, l->overlap, *a);
}

/* One warp per row; grid: (rows). */
static __global__ void __launch_bounds__(32) route_kernel(route_args a)
{
    depend();
    route_row(a, blockIdx.x, dynamic_shared<float>(), threadIdx.x);
}

/* One block: a warp for each row, then the pairs of all rows. */
static __global__ void __launch_bounds__(GROUP_WARPS * 32) route_group_kernel(route_args a)
{
    float *shared = dynamic_shared<float>();
    const uint32_t warp = threadIdx.x / 32;
    depend();
    if (warp < a.rows)
        route_row(a, warp, shared + warp * route_floats(a), threadIdx.x % 32);
    __syncthreads();
    group_pairs(a.group, (uint32_t *)shared);
}

extern "C" cudaError_t route_launch(const struct launch *l, const void *args)
{
    const route_args *a = (const route_args *)args;
    const size_t row = route_floats(*a) * sizeof(float);
    if (!a->group.begin)
        return launch(route_kernel, a->rows, 32, row, l->stream, l->overlap, *a);
    const uint32_t for_pairs = group_warps(a->group);
    const uint32_t warps = a->rows > for_pairs ? a->rows : for_pairs;
    const size_t rows = a->rows * row, words = group_words(a->group) * sizeof(uint32_t);
    return launch(route_group_kernel, 1, 32 * warps, rows > words ? rows : words, l->stream,
                  l->overlap, *a);
}

/* ---------------------------------------------------------------- inputs and results */

/* Eight columns of a row, which are 16 bytes in NARROW_WGMMA: of 32 columns those with the same
 * number modulo 8, and its neighbours. */
static __device__ __forceinline__ uint4 eight_of(const collect_args &a, const float *x, uint32_t at)
{
    const uint32_t k = at / 4 * 32 + at % 4 * 2;
    uint32_t v[4];
#pragma unroll
    for (uint32_t t = 0; t < 4; t++) {
        const uint32_t c = k + 8 * t;
        float2 f = {};
        if (a.n % 2 == 0 && c < a.n)
            f = *(const float2 *)(x + c);
        else if (c < a.n)
            f.x = x[c], f.y = c + 1 < a.n ? x[c + 1] : 0.0f;
        v[t] = a.dtype == DT_F16 ? F16::pack(f.x, f.y) : Bf16::pack(f.x, f.y);
    }
    return make_uint4(v[0], v[1], v[2], v[3]);
}

static __global__ void __launch_bounds__(256) collect_kernel(collect_args a)
{
    depend();
    const uint32_t each = a.pitch / 8, all = *a.used * each;
    for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < all; i += gridDim.x * 256) {
        const float *x = a.x + (size_t)(a.list[i / each] / a.per_row) * a.n;
        *(uint4 *)(a.y + (size_t)i * 8) = eight_of(a, x, i % each);
    }
}

extern "C" cudaError_t collect_launch(const struct launch *l, const void *args)
{
    const collect_args *a = (const collect_args *)args;
    const uint32_t blocks = (a->rows * (a->pitch / 8) + 255) / 256;
    return launch(collect_kernel, blocks < 2112 ? blocks : 2112, 256, 0, l->stream, l->overlap, *a);
}

/* grid: (pairs) */
static __global__ void __launch_bounds__(256) expert_bias_kernel(expert_bias_args a)
{
    depend();
    const float *bias = a.bias + (a.expert ? (size_t)a.expert[blockIdx.x] * a.n : 0);
    float *y = a.y + (size_t)blockIdx.x * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += 256)
        y[i] += bias[i];
}

extern "C" cudaError_t expert_bias_launch(const struct launch *l, const void *args)
{
    const expert_bias_args *a = (const expert_bias_args *)args;
    return launch(expert_bias_kernel, a->pairs, 256, 0, l->stream, l->overlap, *a);
}

/* An expert's result of a row is here, or on another rank. */
static __device__ __forceinline__ bool mixes(const mix_args &a, uint32_t pair)
{
    return !a.expert || a.expert[pair] - a.first < a.here;
}

enum { MIX_THREADS = 128, MIX_EACH = 4 /* columns of a thread */ };

static __device__ __forceinline__ void mix_store(const mix_args &a, size_t at, float sum)
{
    if (a.sum)
        a.sum[at] = fmaf(a.scale, sum, a.sum[at]);
    else
        a.y[at] = sum;
}

/* grid: (rows, columns / (MIX_THREADS * MIX_EACH)) */
static __global__ void __launch_bounds__(MIX_THREADS) mix_kernel(mix_args a)
{
    depend();
    const uint32_t pair = blockIdx.x * a.top_k;
    const float *w = a.weight + pair;
    const float *x = a.x + (size_t)blockIdx.x * a.top_k * a.n;
    const uint32_t i = (blockIdx.y * MIX_THREADS + threadIdx.x) * MIX_EACH;
    const size_t at = (size_t)blockIdx.x * a.n + i;
    if (a.n % MIX_EACH == 0 && i < a.n) {
        float4 sum = {};
#pragma unroll 4
        for (uint32_t k = 0; k < a.top_k; k++) {
            if (!mixes(a, pair + k))
                continue;
            const float4 v = *(const float4 *)(x + (size_t)k * a.n + i);
            const float by = a.plain ? 1.0f : w[k];
            sum.x = fmaf(by, v.x, sum.x), sum.y = fmaf(by, v.y, sum.y);
            sum.z = fmaf(by, v.z, sum.z), sum.w = fmaf(by, v.w, sum.w);
        }
        mix_store(a, at, sum.x), mix_store(a, at + 1, sum.y);
        mix_store(a, at + 2, sum.z), mix_store(a, at + 3, sum.w);
        return;
    }
    for (uint32_t j = 0; j < MIX_EACH && i + j < a.n; j++) {
        float sum = 0.0f;
        for (uint32_t k = 0; k < a.top_k; k++)
            if (mixes(a, pair + k))
                sum = fmaf(a.plain ? 1.0f : w[k], x[(size_t)k * a.n + i + j], sum);
        mix_store(a, at + j, sum);
    }
}

extern "C" cudaError_t mix_launch(const struct launch *l, const void *args)
{
    const mix_args *a = (const mix_args *)args;
    const uint32_t each = MIX_THREADS * MIX_EACH;
    return launch(mix_kernel, dim3(a->rows, (a->n + each - 1) / each), MIX_THREADS, 0, l->stream,
                  l->overlap, *a);
}

/* grid: (rows, columns / 256) */
static __global__ void __launch_bounds__(256) zero_kernel(zero_args a)
{
    depend();
    const uint32_t i = blockIdx.y * 256 + threadIdx.x, pair = blockIdx.x * a.top_k;
    const size_t at = (size_t)blockIdx.x * a.n + i;
    if (i >= a.n)
        return;
    float sum = a.y[at];
    for (uint32_t k = 0; k < a.top_k; k++)
        if (a.expert[pair + k] >= a.first)
            sum = fmaf(a.weight[pair + k], a.x[at], sum);
    a.y[at] = sum;
}

extern "C" cudaError_t zero_launch(const struct launch *l, const void *args)
{
    const zero_args *a = (const zero_args *)args;
    return launch(zero_kernel, dim3(a->rows, (a->n + 255) / 256), 256, 0, l->stream, l->overlap,
                  *a);
}

static __global__ void __launch_bounds__(256) heads_kernel(heads_args a)
{
    depend();
    const uint32_t all = a.rows * a.heads;
    for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < all; i += gridDim.x * 256)
        a.list[i] = i % a.rows * a.heads + i / a.rows;
    for (uint32_t h = blockIdx.x * 256 + threadIdx.x; h <= a.heads; h += gridDim.x * 256) {
        a.begin[h] = h * a.rows;
        if (h < a.heads)
            a.jobs[h] = expert_job{h, h * a.rows, a.rows, h};
        else
            a.begin[h + 1] = a.heads;
    }
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
