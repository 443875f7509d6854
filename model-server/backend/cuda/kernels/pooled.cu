/* pooled.cu - keys of pools of tokens: see struct pool_keys. A thread has one number of a
 * sequence's keys, in the order of the tokens, as on the CPU (backend/cpu/pooled.c). */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/numbers.cuh"

enum { THREADS = 64 };

/* One number of a pool that is open; weights are 0 before its first token. */
struct open_pool {
    float most, weights, sum;
    __device__ void add(float logit, float key)
    {
        const float now = weights == 0.0f || logit > most ? logit : most;
        const float was = weights == 0.0f ? 0.0f : math_exp(most - now), by = math_exp(logit - now);
        weights = fmaf(weights, was, by);
        sum = fmaf(sum, was, by * key);
        most = now;
    }
};

/* Of number i of a token's gates and number b of the biases. */
static __device__ __forceinline__ float logit_of(const pooled_args &a, size_t i, size_t b)
{
    return (a.gates ? a.gates[i] : 0.0f) + (a.bias ? a.bias[b] : 0.0f);
}

static __device__ open_pool load_pool(const float *cell, uint32_t dim)
{
    return open_pool{cell[0], cell[dim], cell[2 * (size_t)dim]};
}

static __device__ void store_pool(float *cell, uint32_t dim, const open_pool &o)
{
    cell[0] = o.most, cell[dim] = o.weights, cell[2 * (size_t)dim] = o.sum;
}

/* grid: (spans, dim / THREADS) */
static __global__ void __launch_bounds__(THREADS) pooled_kernel(pooled_args a)
{
    depend();
    const uint32_t c = blockIdx.y * THREADS + threadIdx.x;
    const span_view s = a.spans[blockIdx.x];
    const uint32_t before = s.kv_len - s.n;
    const size_t own = (size_t)(a.series - 1) * a.dim, wide = own + a.dim;
    if (c >= a.dim)
        return;
    const float *from = a.base + s.state_in * a.stride + c;
    open_pool pool = {}, next = {};
    if (before % a.size)
        pool = load_pool(from, a.dim);
    if (before && own)
        next = load_pool(from + 3 * (size_t)a.dim, a.dim);
    for (uint32_t t = 0; t < s.n; t++) {
        const uint32_t at = (before + t) % a.size;
        const size_t i = (s.first + t) * wide + c, b = at * wide + c;
        if (at == 0)
            pool = next, next = open_pool{};
        pool.add(logit_of(a, i + own, b + own), a.x[i + own]);
        if (own)
            next.add(logit_of(a, i, b), a.x[i]);
        a.k[(size_t)(s.first + t) * a.dim + c] = at + 1 == a.size ? pool.sum / pool.weights : 0.0f;
    }
    float *to = a.base + s.state_out * a.stride + c;
    store_pool(to, a.dim, pool);
    if (own)
        store_pool(to + 3 * (size_t)a.dim, a.dim, next);
}

extern "C" cudaError_t pooled_launch(const struct launch *l, const void *args)
{
    const pooled_args *a = (const pooled_args *)args;
    return launch(pooled_kernel, dim3(a->n_spans, (a->dim + THREADS - 1) / THREADS), THREADS, 0,
                  l->stream, l->overlap, *a);
}
