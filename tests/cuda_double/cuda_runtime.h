/* cuda_runtime.h - the double's implementation of CUDA C++: vectors, built-in variables, warp
 * operations. Threads of a block are fibers (block.cc); a thread that must wait for others
 * yields. */
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
struct uint2 {
    uint32_t x, y;
};
struct uint4 {
    uint32_t x, y, z, w;
};
static inline uint32_t __float_as_uint(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}
static inline uint32_t max(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline float2 make_float2(float x, float y) { return float2{x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
static inline uint2 make_uint2(uint32_t x, uint32_t y) { return uint2{x, y}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return uint4{x, y, z, w};
}

/* Nibble i of `which` names byte i of the result: 0 .. 3 of x, 4 .. 7 of y. */
static inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t which)
{
    uint64_t both = (uint64_t)y << 32 | x;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++)
        r |= (uint32_t)(both >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}

extern dim3 threadIdx, blockIdx, blockDim, gridDim; /* of the fiber that runs */

void __syncthreads(void);
/* All lanes of the warp arrive with their operand; the last one runs fn(operands) for all. */
void double_warp(void (*fn)(void *const operands[32]), void *operand);
void double_warpgroup(void (*fn)(void *const operands[128]), void *operand); /* four warps */
void *double_dynamic_shared(void);
void double_poll(void); /* a thread polls memory that another device will write */
uint64_t
double_ns(void); /* its clock; one second of it is a sixtieth of a real one, for time-outs */
/* Copies to shared memory happen at the wait, not before. */
void double_copy_async(void *dst, const void *src, size_t bytes, bool valid);
void double_copy_commit(void);
void double_depend_wait(void);
void double_copy_wait(int left);
void double_enqueue(cudaStream_t s, std::function<void()> f);
bool double_capturing(cudaStream_t s);
/* The barrier of a cluster, and an address in the shared memory of one of its blocks. */
void double_cluster_barrier(void);
void *double_cluster_shared(void *p, uint32_t rank);
/* Runs `body` for every thread of the grid, in stream order; `cluster` blocks of a row
 * together. */
cudaError_t double_launch(dim3 grid, uint32_t cluster, dim3 block, size_t smem, cudaStream_t s,
                          bool overlap, std::function<void()> body);

/* Fibers switch only at barriers. */
template <typename T> static inline T atomicAdd(T *p, T v)
{
    T old = *p;
    *p += v;
    return old;
}
/* Blocks run one after the other: later ones see earlier writes. */
static inline void __threadfence(void) {}
static inline float cospif(float x) { return (float)cos(M_PI * (double)x); }
static inline float sinpif(float x) { return (float)sin(M_PI * (double)x); }
static inline float __uint_as_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}
static inline double __longlong_as_double(long long i)
{
    double d;
    memcpy(&d, &i, sizeof(d));
    return d;
}
static inline long long __double_as_longlong(double d)
{
    long long i;
    memcpy(&i, &d, sizeof(i));
    return i;
}

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
template <typename T> static inline T __shfl_up_sync(uint32_t, T v, unsigned by)
{
    double_shuffle<T> mine = {v, v, (int)by};
    double_warp(
        [](void *const *lanes) {
            double_shuffle<T> *const *l = (double_shuffle<T> *const *)lanes;
            for (int i = 0; i < 32; i++)
                l[i]->out = i >= l[i]->mask ? l[i - l[i]->mask]->in : l[i]->in;
        },
        &mine);
    return mine.out;
}

template <typename T> static inline T __shfl_sync(uint32_t, T v, int from)
{
    double_shuffle<T> mine = {v, v, from};
    double_warp(
        [](void *const *lanes) {
            double_shuffle<T> *const *l = (double_shuffle<T> *const *)lanes;
            for (int i = 0; i < 32; i++)
                l[i]->out = l[l[i]->mask % 32]->in;
        },
        &mine);
    return mine.out;
}

/* Lanes with the same value; lanes whose predicate is true. */
template <typename T> struct double_vote {
    T in;
    uint32_t out;
};
template <typename T> static inline uint32_t __match_any_sync(uint32_t, T v)
{
    double_vote<T> mine = {v, 0};
    double_warp(
        [](void *const *lanes) {
            double_vote<T> *const *l = (double_vote<T> *const *)lanes;
            for (int i = 0; i < 32; i++)
                for (int j = 0; j < 32; j++)
                    l[i]->out |= (uint32_t)(l[i]->in == l[j]->in) << j;
        },
        &mine);
    return mine.out;
}
static inline uint32_t __ballot_sync(uint32_t, bool v)
{
    const uint32_t same = __match_any_sync(~0u, v);
    return v ? same : ~same;
}
static inline int __popc(uint32_t v) { return __builtin_popcount(v); }
#endif
