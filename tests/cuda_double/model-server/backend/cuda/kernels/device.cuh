/* device.cuh - the double's instructions, in the place of the file of the same name: what the PTX
 * manual says they do, lane by lane. Sums of an MMA are taken in double and rounded once. */
#ifndef MODEL_SERVER_BACKEND_CUDA_DEVICE_CUH
#define MODEL_SERVER_BACKEND_CUDA_DEVICE_CUH
#include "model-server/backend/numbers.h"
#include <cuda_runtime.h>

template <typename... P, typename... A>
static inline cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                                 cudaStream_t stream, bool overlap, A... args)
{
    return double_launch(grid, 1, block, smem, stream, overlap, [=] { kernel(args...); });
}

template <typename... P, typename... A>
static inline cudaError_t launch_clusters(void (*kernel)(P...), dim3 grid, unsigned cluster,
                                          dim3 block, size_t smem, cudaStream_t stream,
                                          bool overlap, A... args)
{
    return double_launch(grid, cluster, block, smem, stream, overlap, [=] { kernel(args...); });
}

template <typename... P, typename... A>
static inline cudaError_t launch_team(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                                      cudaStream_t stream, bool overlap, A... args)
{
    return launch_clusters(kernel, grid, grid.x, block, smem, stream, overlap, args...);
}

static inline void cluster_barrier(void) { double_cluster_barrier(); }
template <typename T> static inline T *cluster_shared(T *p, uint32_t rank)
{
    return (T *)double_cluster_shared(p, rank);
}

template <typename T> static inline T other_lane(T v, int mask)
{
    return __shfl_xor_sync(~0u, v, mask);
}
/* The butterfly of all lanes, when they have met once: a meeting is most of the time of a shuffle. */
template <typename T, typename F> struct double_fold {
    T v;
    F op;
};
template <typename T, typename F> static inline T warp_fold(T v, F op)
{
    double_fold<T, F> mine = {v, op};
    double_warp(
        [](void *const *lanes) {
            double_fold<T, F> *const *l = (double_fold<T, F> *const *)lanes;
            for (int mask = 16; mask; mask /= 2)
                for (int i = 0; i < 32; i++) {
                    const int j = i ^ mask;
                    if (i > j)
                        continue;
                    const T a = l[i]->v, b = l[j]->v;
                    l[i]->v = l[i]->op(a, b), l[j]->v = l[j]->op(b, a);
                }
        },
        &mine);
    return mine.v;
}
static inline float warp_sum(float v)
{
    return warp_fold(v, [](float a, float b) { return a + b; });
}

static inline void depend_start(void) {}
static inline void depend_wait(void) { double_depend_wait(); }
static inline void depend(void) { depend_wait(); }

template <typename T> static inline T *dynamic_shared(void) { return (T *)double_dynamic_shared(); }

static inline void copy_async(void *dst, const void *src, bool valid)
{
    double_copy_async(dst, src, 16, valid);
}
static inline void copy_streaming(void *dst, const void *src)
{
    double_copy_async(dst, src, 16, true);
}
static inline void copy_streaming8(void *dst, const void *src)
{
    double_copy_async(dst, src, 8, true);
}
static inline void copy_streaming4(void *dst, const void *src)
{
    double_copy_async(dst, src, 4, true);
}
static inline void copy_commit(void) { double_copy_commit(); }
template <int LEFT> static inline void copy_wait(void) { double_copy_wait(LEFT); }

/* Other devices are other processes. Who polls lets them run. */
static inline void store_release(uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
static inline uint32_t load_acquire(const uint32_t *p)
{
    double_poll();
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static inline void store_peer(float *p, float4 v)
{
    if ((uintptr_t)p % 16)
        __builtin_trap();
    memcpy(p, &v, sizeof(v));
}
static inline float4 load_peer(const float *p)
{
    float4 v;
    if ((uintptr_t)p % 16)
        __builtin_trap();
    memcpy(&v, p, sizeof(v));
    return v;
}
static inline uint64_t device_ns(void) { return double_ns(); }

struct double_matrix {
    const uint16_t *row;
    uint32_t *r;
};
static inline void load_matrix_trans(uint32_t r[4], const void *row)
{
    double_matrix mine = {(const uint16_t *)row, r};
    double_warp(
        [](void *const *lanes) {
            double_matrix *const *l = (double_matrix *const *)lanes;
            for (int lane = 0; lane < 32; lane++)
                for (int i = 0; i < 4; i++) {
                    uint32_t lo = l[8 * i + lane % 4 * 2]->row[lane / 4];
                    uint32_t hi = l[8 * i + lane % 4 * 2 + 1]->row[lane / 4];
                    l[lane]->r[i] = lo | hi << 16;
                }
        },
        &mine);
}

static inline void load_matrix(uint32_t r[4], const void *row)
{
    double_matrix mine = {(const uint16_t *)row, r};
    if ((uintptr_t)row % 16)
        __builtin_trap();
    double_warp(
        [](void *const *lanes) {
            double_matrix *const *l = (double_matrix *const *)lanes;
            for (int lane = 0; lane < 32; lane++)
                for (int i = 0; i < 4; i++)
                    memcpy(&l[lane]->r[i], l[8 * i + lane / 4]->row + lane % 4 * 2, 4);
        },
        &mine);
}

static inline float exp2_fast(float x) { return exp2f(x); }
/* As inaccurate as allowed. */
static inline float reciprocal_fast(float x)
{
    const float y = 1.0f / x;
    return fabsf(y) < 0x1p-126f ? 0.0f : __float_as_uint(x) % 2 ? nextafterf(y, 0.0f) : y;
}
static inline uint32_t opaque(uint32_t v) { return v; }
/* Whoever uses the number sees it. */
static inline void unset(float *f) { *f = NAN; }

static inline float low_half(uint32_t h) { return f32_of_f16((uint16_t)h); }
static inline float high_half(uint32_t h) { return f32_of_f16((uint16_t)(h >> 16)); }

static inline uint32_t permute(uint32_t lo, uint32_t hi, uint32_t select)
{
    uint64_t both = lo | (uint64_t)hi << 32;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++)
        r |= (uint32_t)(both >> (select >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return r;
}

static inline uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) { return (a & mask) | bits; }

static inline uint32_t table_numbers(const uint32_t table[4], uint32_t codes)
{
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t code = codes >> 4 * i & 15;
        r |= (table[code / 4] >> code % 4 * 8 & 255) << 8 * i;
    }
    return r;
}

/* a b + c of both halves, rounded once (double holds the exact sum of what kernels ask for). */
template <float (*WIDE)(uint16_t), uint16_t (*NARROW)(float)>
static inline uint32_t double_fma2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r = 0;
    for (int h = 0; h < 32; h += 16)
        r |= (uint32_t)NARROW((float)fma(WIDE((uint16_t)(a >> h)), WIDE((uint16_t)(b >> h)),
                                         WIDE((uint16_t)(c >> h))))
             << h;
    return r;
}

template <typename SUM> struct double_mma {
    SUM *c;
    const uint32_t *a;
    uint32_t b[2];
};

/* c[16x8] += a[16x16] b[16x8] from the fragments of 32 lanes; of 8-bit integers a[16x32] b[32x8]:
 * mma.cc. */
void double_mma_bf16(void *const *lanes);
void double_mma_f16(void *const *lanes);
void double_mma_s8(void *const *lanes);

struct Bf16 {
    typedef float sum;
    enum { BYTES = 2 };
    static inline uint32_t fma2(uint32_t a, uint32_t b, uint32_t c)
    {
        return double_fma2<f32_of_bf16, bf16_of_f32>(a, b, c);
    }
    static inline uint32_t pack(float lo, float hi)
    {
        return bf16_of_f32(lo) | (uint32_t)bf16_of_f32(hi) << 16;
    }
    static inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
    {
        double_mma<float> mine = {c, a, {b0, b1}};
        double_warp(double_mma_bf16, &mine);
    }
};

struct F16 {
    typedef float sum;
    enum { BYTES = 2 };
    static inline uint32_t fma2(uint32_t a, uint32_t b, uint32_t c)
    {
        return double_fma2<f32_of_f16, f16_of_f32>(a, b, c);
    }
    static inline uint32_t pack(float lo, float hi)
    {
        lo = lo > 65504.0f ? 65504.0f : lo < -65504.0f ? -65504.0f : lo;
        hi = hi > 65504.0f ? 65504.0f : hi < -65504.0f ? -65504.0f : hi;
        return f16_of_f32(lo) | (uint32_t)f16_of_f32(hi) << 16;
    }
    static inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
    {
        double_mma<float> mine = {c, a, {b0, b1}};
        double_warp(double_mma_f16, &mine);
    }
};

struct S8 {
    typedef int32_t sum;
    enum { BYTES = 1 };
    static inline void mma(int32_t c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
    {
        double_mma<int32_t> mine = {c, a, {b0, b1}};
        double_warp(double_mma_s8, &mine);
    }
};
#endif
