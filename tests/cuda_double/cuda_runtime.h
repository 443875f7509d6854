/* cuda_runtime.h - the double's side of CUDA C++: vectors, built-in variables, what a warp does
 * together. Threads of a block are fibers (double.cc); one that must wait for others yields. */
#ifndef TESTS_CUDA_DOUBLE_CUDA_RUNTIME_H
#define TESTS_CUDA_DOUBLE_CUDA_RUNTIME_H
#include "tests/cuda_double/cuda_runtime_api.h"
#include <functional>
#include <math.h>
#include <string.h>
using std::signbit; /* NOLINT: CUDA has it without */

struct dim3 {
    uint32_t x, y, z;
    dim3(uint32_t a = 1, uint32_t b = 1, uint32_t c = 1) : x(a), y(b), z(c) {}
};
struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
struct uint4 {
    uint32_t x, y, z, w;
};
static inline float2 make_float2(float x, float y) { return float2{x, y}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return uint4{x, y, z, w};
}

extern dim3 threadIdx, blockIdx, blockDim, gridDim; /* of the fiber that runs */

void __syncthreads(void);
/* All lanes of the warp arrive with their operand; the last one runs fn(operands) for all. */
void double_warp(void (*fn)(void *const operands[32]), void *operand);
void *double_dynamic_shared(void);
/* Copies to shared memory happen at the wait, not before. */
void double_copy_async(void *dst, const void *src, bool valid);
void double_copy_commit(void);
void double_copy_wait(int left);
void double_enqueue(cudaStream_t s, std::function<void()> f);
/* Run `body` for every thread of the grid, in stream order. */
cudaError_t double_launch(dim3 grid, dim3 block, size_t smem, cudaStream_t s,
                          std::function<void()> body);

static inline void __syncwarp(void)
{
    double_warp([](void *const *) {}, NULL);
}

template <typename T> struct double_shuffle {
    T in, out;
    int mask;
};
template <typename T> static inline T __shfl_xor_sync(uint32_t, T v, int mask)
{
    double_shuffle<T> mine = {v, v, mask};
    double_warp(
        [](void *const *lanes) {
            double_shuffle<T> *const *l = (double_shuffle<T> *const *)lanes;
            for (int i = 0; i < 32; i++)
                l[i]->out = l[i ^ l[i]->mask]->in;
        },
        &mine);
    return mine.out;
}
#endif
