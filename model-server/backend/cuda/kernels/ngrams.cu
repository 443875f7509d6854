/* ngrams.cu - rows of hashed n-grams in their tables: see struct ngrams. A thread has a token and a
 * table; integers alone, so that a row is the CPU's (backend/cpu/ngrams.c). */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/recur.cuh"

enum { THREADS = 64 };

/* Id number `at` of a span; negative ones are in its cell, -1 is the last of them. */
static __device__ __forceinline__ uint32_t id_at(const ngrams_args &a, const span_view &s, int at)
{
    if (at >= 0)
        return a.ids[s.first + (uint32_t)at];
    if (at_start(s))
        return a.end;
    return ((const uint32_t *)(a.base + s.state_in * a.stride))[(int)a.most - 1 + at];
}

/* grid: (tokens, tables / THREADS) */
static __global__ void __launch_bounds__(THREADS) ngrams_kernel(ngrams_args a)
{
    depend();
    const uint32_t k = blockIdx.y * THREADS + threadIdx.x;
    const span_view s = a.spans[a.span_of[blockIdx.x]];
    const int t = (int)(blockIdx.x - s.first);
    uint32_t id[NGRAM_IDS] = {};
    bool ended = false;
    if (k >= a.n)
        return;
#pragma unroll
    for (int i = 0; i < NGRAM_IDS; i++)
        if (i < (int)a.most) {
            const uint32_t own = id_at(a, s, t - i);
            id[i] = ended ? a.end : own;
            ended |= i > 0 && own == a.end;
        }
    const ngram_table table = a.tables[k];
    uint64_t hash = 0;
#pragma unroll
    for (uint32_t i = 0; i < NGRAM_IDS; i++)
        hash ^= i < table.length ? id[i] * a.by[i] : 0;
    a.rows[(size_t)blockIdx.x * a.n + k] = table.first + (uint32_t)(hash % table.size);
}

extern "C" cudaError_t ngrams_launch(const struct launch *l, const void *args)
{
    const ngrams_args *a = (const ngrams_args *)args;
    return launch(ngrams_kernel, dim3(a->tokens, (a->n + THREADS - 1) / THREADS), THREADS, 0,
                  l->stream, l->overlap, *a);
}

/* grid: (spans). The oldest first: the cells may be one. */
static __global__ void __launch_bounds__(1) ngrams_keep_kernel(ngrams_args a)
{
    depend();
    const span_view s = a.spans[blockIdx.x];
    uint32_t *cell = (uint32_t *)(a.base + s.state_out * a.stride);
    for (int i = 0, last = (int)a.most - 1; i < last; i++)
        cell[i] = id_at(a, s, (int)s.n - last + i);
}

extern "C" cudaError_t ngrams_keep_launch(const struct launch *l, const void *args)
{
    const ngrams_args *a = (const ngrams_args *)args;
    return launch(ngrams_keep_kernel, a->n_spans, 1, 0, l->stream, l->overlap, *a);
}
