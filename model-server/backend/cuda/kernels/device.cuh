/* device.cuh - wrappers of instructions without a name in CUDA C++, and launch().
 *
 * Kernels use no other PTX, so that tests/cuda_double can replace this file and run the same
 * kernels on a CPU. Fragment layouts are those of the PTX manual, with g = lane / 4 and t = lane
 * % 4. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_DEVICE_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_DEVICE_CUH
#include <cuda_runtime.h>
#include <stdint.h>

/* ---------------------------------------------------------------- launching */

/* Enqueues kernel<<<grid, block, smem, stream>>>(args). `overlap`: programmatic dependent launch;
 * the kernel must call depend() in every thread before it accesses another kernel's results, and
 * before it returns. */
template <typename... P, typename... A>
static inline cudaError_t launch_clusters(void (*kernel)(P...), dim3 grid, unsigned cluster,
                                          dim3 block, size_t smem, cudaStream_t stream,
                                          bool overlap, A... args)
{
    if (smem > 48 << 10) {
        cudaError_t rc = cudaFuncSetAttribute(
            (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
        if (rc != cudaSuccess)
            return rc;
    }
    cudaLaunchAttribute attr[2] = {};
    attr[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[0].val.programmaticStreamSerializationAllowed = overlap;
    attr[1].id = cudaLaunchAttributeClusterDimension;
    attr[1].val.clusterDim.x = cluster;
    attr[1].val.clusterDim.y = attr[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = smem;
    c.stream = stream;
    c.attrs = attr;
    c.numAttrs = cluster > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&c, kernel, static_cast<P>(args)...);
}

template <typename... P, typename... A>
static inline cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                                 cudaStream_t stream, bool overlap, A... args)
{
    return launch_clusters(kernel, grid, 1, block, smem, stream, overlap, args...);
}

/* The same with the blocks of a row of the grid as one cluster: compute capability 9.0, unless
 * grid.x is 1; up to 8 blocks. */
template <typename... P, typename... A>
static inline cudaError_t launch_team(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                                      cudaStream_t stream, bool overlap, A... args)
{
    return launch_clusters(kernel, grid, grid.x, block, smem, stream, overlap, args...);
}

/* The next kernel may start once every block has reached this point. Safe at the very start of a
 * kernel. The next kernel's own wait is for this whole grid, and this grid does not end before
 * its own wait is over. So completion is transitive over kernels. */
static __device__ __forceinline__ void depend_start(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
/* The predecessor's results are visible after this. */
static __device__ __forceinline__ void depend_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ __forceinline__ void depend(void)
{
    depend_start();
    depend_wait();
}

/* Dynamic shared memory, 128-byte aligned. */
template <typename T> static __device__ __forceinline__ T *dynamic_shared(void)
{
    extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[];
    return (T *)dynamic_shared_bytes;
}

/* ---------------------------------------------------------------- warps */

template <typename T> static __device__ __forceinline__ T other_lane(T v, int mask)
{
    return __shfl_xor_sync(~0u, v, mask);
}

/* What op makes of the values of all lanes, the same in every lane: a butterfly. op(a, b) has the
 * bits of op(b, a). A structure has an overload of other_lane(). */
template <typename T, typename F> static __device__ __forceinline__ T warp_fold(T v, F op)
{
#pragma unroll
    for (int mask = 16; mask; mask /= 2)
        v = op(v, other_lane(v, mask));
    return v;
}

static __device__ __forceinline__ float warp_sum(float v)
{
    return warp_fold(v, [](float a, float b) { return a + b; });
}

/* ---------------------------------------------------------------- clusters */

/* Waits until all threads of all blocks of the cluster have arrived, and their earlier writes are
 * visible. */
static __device__ __forceinline__ void cluster_barrier(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#endif
}

/* The address in block `rank` of the cluster of what is at `p` in this block's shared memory. */
template <typename T> static __device__ __forceinline__ T *cluster_shared(T *p, uint32_t rank)
{
#if __CUDA_ARCH__ >= 900
    uint64_t there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((uint64_t)p), "r"(rank));
    return (T *)there;
#else
    return p;
#endif
}

/* ---------------------------------------------------------------- memory */

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes from global to shared memory; zeros when `valid` is false. Complete after
 * copy_commit(), copy_wait() and a barrier. */
static __device__ __forceinline__ void copy_async(void *dst, const void *src, bool valid)
{
    int bytes = valid ? 16 : 0;
    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(dst)),
        "l"(src), "r"(bytes)
        : "memory");
}
/* The same of 16, 8 and 4 bytes of weights, which a step reads once, in rows one after the other.
 */
static __device__ __forceinline__ void copy_streaming(void *dst, const void *src)
{
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(shared_address(dst)),
                 "l"(src)
                 : "memory");
}
static __device__ __forceinline__ void copy_streaming8(void *dst, const void *src)
{
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8;" ::"r"(shared_address(dst)),
                 "l"(src)
                 : "memory");
}
static __device__ __forceinline__ void copy_streaming4(void *dst, const void *src)
{
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4;" ::"r"(shared_address(dst)),
                 "l"(src)
                 : "memory");
}
static __device__ __forceinline__ void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until all but the `LEFT` youngest groups of this thread are in shared memory. */
template <int LEFT> static __device__ __forceinline__ void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Words that another device or the host accesses concurrently. A release makes the block's writes
 * before its last barrier visible to every reader that acquires the stored value. */
static __device__ __forceinline__ void store_release(uint32_t *p, uint32_t v)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
static __device__ __forceinline__ uint32_t load_acquire(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
/* 16 bytes of a peer's memory, and of this one's that a peer has written. */
static __device__ __forceinline__ void store_peer(float *p, float4 v)
{
    asm volatile("st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v.x),
                 "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
}
static __device__ __forceinline__ float4 load_peer(const float *p)
{
    float4 v;
    asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
static __device__ __forceinline__ uint64_t device_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

/* Four 8x8 matrices of 16-bit numbers, transposed: lanes 8i .. 8i + 7 give the rows of matrix i;
 * r[i] is elements (2t, g) and (2t + 1, g) of it. */
static __device__ __forceinline__ void load_matrix_trans(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* The same, not transposed: r[i] is elements (g, 2t) and (g, 2t + 1) of matrix i. */
static __device__ __forceinline__ void load_matrix(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* v: what is computed from it is computed here, not kept in registers from earlier places. */
static __device__ __forceinline__ uint32_t opaque(uint32_t v)
{
    asm volatile("" : "+r"(v));
    return v;
}

/* *f has no value from here on: it needs no register until it is set. */
static __device__ __forceinline__ void unset(float *f) { asm volatile("" : "=f"(*f)); }

/* ---------------------------------------------------------------- arithmetic */

/* 2^x, within 2 units in the last place; 2^-inf is 0. The same bits wherever it is used. */
static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x, within 1 unit in the last place; subnormal numbers are 0. */
static __device__ __forceinline__ float reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The two float16 halves of h. */
static __device__ __forceinline__ float low_half(uint32_t h)
{
    float y;
    asm("{\n.reg .f16 lo, hi;\nmov.b32 {lo, hi}, %1;\ncvt.f32.f16 %0, lo;\n}" : "=f"(y) : "r"(h));
    return y;
}
static __device__ __forceinline__ float high_half(uint32_t h)
{
    float y;
    asm("{\n.reg .f16 lo, hi;\nmov.b32 {lo, hi}, %1;\ncvt.f32.f16 %0, hi;\n}" : "=f"(y) : "r"(h));
    return y;
}

/* Bytes of {lo, hi}, 0 .. 3 of `lo` and 4 .. 7 of `hi`: nibble i of `select` says which becomes
 * byte i. */
static __device__ __forceinline__ uint32_t permute(uint32_t lo, uint32_t hi, uint32_t select)
{
    return __byte_perm(lo, hi, select);
}

/* (a & mask) | bits as one instruction, also of two constants. */
static __device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(mask), "r"(bits));
    return r;
}

/* Looks up 8-bit numbers in a table of 16 by the lower 4 nibbles of `codes`. */
static __device__ __forceinline__ uint32_t table_numbers(const uint32_t table[4], uint32_t codes)
{
    const uint32_t lower = codes & 0x7777;
    return permute(permute(table[0], table[1], lower), permute(table[2], table[3], lower),
                   (codes & 0x8888) >> 1 | 0x3210);
}

/* The two 16-bit formats: pack(lo, hi) rounds to nearest even; fma2: a b + c of both halves,
 * rounded once, subnormal numbers kept; mma: c[16x8] += a[16x16] b[16x8], fp32 sums. a: (g, 2t..),
 * (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..); b: (2t.., g), (2t + 8.., g); c: (g, 2t), (g, 2t
 * + 1), (g + 8, 2t), (g + 8, 2t + 1). */
struct Bf16 {
    typedef float sum;
    enum { BYTES = 2 };
    static __device__ __forceinline__ uint32_t fma2(uint32_t a, uint32_t b, uint32_t c)
    {
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(a) : "r"(b), "r"(c));
        return a;
    }
    static __device__ __forceinline__ uint32_t pack(float lo, float hi)
    {
        uint32_t r;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
        return r;
    }
    static __device__ __forceinline__ void mma(float c[4], const uint32_t a[4], uint32_t b0,
                                               uint32_t b1)
    {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

struct F16 {
    typedef float sum;
    enum { BYTES = 2 };
    static __device__ __forceinline__ uint32_t fma2(uint32_t a, uint32_t b, uint32_t c)
    {
        asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(a) : "r"(b), "r"(c));
        return a;
    }
    /* Values beyond the largest half, 65504, become it instead of infinity. */
    static __device__ __forceinline__ uint32_t pack(float lo, float hi)
    {
        uint32_t r;
        lo = lo > 65504.0f ? 65504.0f : lo < -65504.0f ? -65504.0f : lo;
        hi = hi > 65504.0f ? 65504.0f : hi < -65504.0f ? -65504.0f : hi;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
        return r;
    }
    static __device__ __forceinline__ void mma(float c[4], const uint32_t a[4], uint32_t b0,
                                               uint32_t b1)
    {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

/* 8-bit integers, exact sums: c[16x8] += a[16x32] b[32x8]. a: (g, 4t..), (g + 8, 4t..),
 * (g, 4t + 16..), (g + 8, 4t + 16..); b: (4t.., g), (4t + 16.., g); c as above. */
struct S8 {
    typedef int32_t sum;
    enum { BYTES = 1 };
    static __device__ __forceinline__ void mma(int32_t c[4], const uint32_t a[4], uint32_t b0,
                                               uint32_t b1)
    {
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};
#endif
