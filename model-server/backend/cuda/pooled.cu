/* pooled.cu - keys of pools of tokens: see struct pool_keys. A thread has one number of a
 * sequence's keys, in the order of the tokens, as on the CPU (backend/cpu/pooled.c). */
#include "model-server/backend/cuda/device.cuh"
#include "model-server/backend/cuda/kernels.h"
#include "model-server/backend/cuda/numbers.cuh"

enum { THREADS = 64 };

/* grid: (spans, dim / THREADS) */
static __global__ void __launch_bounds__(THREADS) pooled_kernel(pooled_args a)
{
    depend();
    const uint32_t c = blockIdx.y * THREADS + threadIdx.x;
    const span_view s = a.spans[blockIdx.x];
    const uint32_t before = s.kv_len - s.n;
    if (c >= a.dim)
        return;
    float most = 0.0f, weights = 0.0f, sum = 0.0f;
    if (before % a.size) {
        const float *cell = a.base + s.state_in * a.stride + c;
        most = cell[0], weights = cell[a.dim], sum = cell[2 * (size_t)a.dim];
    }
    for (uint32_t t = 0; t < s.n; t++) {
        const uint32_t at = (before + t) % a.size;
        const size_t i = (size_t)(s.first + t) * a.dim + c;
        const float logit = a.gates[i] + a.bias[(size_t)at * a.dim + c];
        const float now = at == 0 || logit > most ? logit : most;
        const float was = at == 0 ? 0.0f : math_exp(most - now), by = math_exp(logit - now);
        weights = fmaf(weights, was, by);
        sum = fmaf(sum, was, by * a.k[i]);
        most = now;
        a.k[i] = at + 1 == a.size ? sum / weights : 0.0f;
    }
    float *cell = a.base + s.state_out * a.stride + c;
    cell[0] = most, cell[a.dim] = weights, cell[2 * (size_t)a.dim] = sum;
}

extern "C" cudaError_t pooled_launch(const struct launch *l, const void *args)
{
    const pooled_args *a = (const pooled_args *)args;
    return launch(pooled_kernel, dim3(a->n_spans, (a->dim + THREADS - 1) / THREADS), THREADS, 0,
                  l->stream, l->overlap, *a);
}
