/* hopper.cuh - instructions that only compute capability 9.0 has, one wrapper each as in
 * device.cuh: barriers in shared memory that count bytes, tiles copied by a tensor map, products of
 * a warpgroup (4 warps in a row, the first of them a multiple of 4).
 *
 * For sources compiled for sm_90a. tests/cuda_double has a file of the same name. Meanings are
 * those of the PTX manual's chapters on mbarrier, cp.async.bulk.tensor and wgmma. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_HOPPER_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_HOPPER_CUH
#include "model-server/backend/cuda/kernels/device.cuh"
#include <cuda.h>

/* ---------------------------------------------------------------- barriers */

/* A phase ends when `arrivals` threads have arrived and all announced bytes have been copied;
 * then the next one begins. In shared memory. */
struct mbarrier {
    uint64_t state;
};

static __device__ __forceinline__ void mbarrier_init(mbarrier *b, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals)
                 : "memory");
}
/* Called by the initialising thread: afterwards copies may use its barriers; threads may after
 * __syncthreads(). */
static __device__ __forceinline__ void mbarrier_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
static __device__ __forceinline__ void mbarrier_arrive(mbarrier *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
/* Arrives and announces `bytes` of copies. */
static __device__ __forceinline__ void mbarrier_expect(mbarrier *b, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
                 "r"(bytes)
                 : "memory");
}
/* Waits for the end of the phase of this parity: 0, 1, 0 ... from initialisation on. The phase of
 * parity 1 before the first one counts as ended. */
static __device__ __forceinline__ void mbarrier_wait(mbarrier *b, uint32_t parity)
{
    uint32_t over = 0;
    while (!over)
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(over)
                     : "r"(shared_address(b)), "r"(parity)
                     : "memory");
}

/* ---------------------------------------------------------------- tiles */

/* Copies the tile of `map` at (column, row) to shared memory, announced to `b` beforehand;
 * missing rows and columns become zeros. dst: 128-byte aligned, 1024 with a 128-byte swizzle. One
 * thread. */
static __device__ __forceinline__ void tile_load(void *dst, const CUtensorMap *map, mbarrier *b,
                                                 uint32_t column, uint32_t row)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(dst)),
                 "l"(map), "r"(shared_address(b)), "r"(column), "r"(row)
                 : "memory");
}
/* Before the first use of a map in global memory, which the host has written: makes it visible to
 * copies. One thread, which then copies. */
static __device__ __forceinline__ void tile_acquire(const CUtensorMap *map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}
/* Prefetches the map itself into the constant cache. */
static __device__ __forceinline__ void tile_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* ---------------------------------------------------------------- products of a warpgroup */

/* Makes this thread's earlier writes to shared memory visible to wgmma, of this thread or of others
 * after a barrier. */
static __device__ __forceinline__ void async_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* A barrier of the warpgroup alone; id: 1 to 15, one for each warpgroup. */
static __device__ __forceinline__ void warpgroup_barrier(uint32_t id)
{
    asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

/* Number of registers of a thread of this warpgroup from here on; all four warps. */
template <int N> static __device__ __forceinline__ void registers_give(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ __forceinline__ void registers_take(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* Makes earlier register writes visible to the following wgmma: needed before the first one, and
 * again after other instructions have written any of its registers. */
static __device__ __forceinline__ void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until all but the `LEFT` youngest groups have ended: their sums are valid, and their
 * operands may be overwritten. */
template <int LEFT> static __device__ __forceinline__ void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

#define FOUR(i)    "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 1), FOUR(i + 2), FOUR(i + 3)
#define ALL64(i)   SIXTEEN(i), SIXTEEN(i + 4), SIXTEEN(i + 8), SIXTEEN(i + 12)
#define SUMS_8     "%0, %1, %2, %3, %4, %5, %6, %7"
#define SUMS_16    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SUMS_32                                                                                    \
    SUMS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_64                                                                                    \
    SUMS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "   \
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUMS_96                                                                                    \
    SUMS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "   \
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

/* wgmma(T(), c, a0, a1, a2, a3, b, add): c[64 x N] += a[64 x 16] b[16 x N], or without `add` c = a b;
 * warp w of the four has rows 16 w .. 16 w + 15. Fragments as of mma.sync: a: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..),
 * (g + 8, 2t + 8..); c[i]: (g, 8i + 2t), (g, 8i + 2t + 1), (g + 8, 8i + 2t), (g + 8, 8i + 2t + 1).
 * b: a descriptor of shared memory, the manual's "matrix descriptor", with k running fastest.
 * It runs on: neither the registers nor what b names may be touched before wgmma_wait(). */
#define WGMMA(T, NAME, N, SUMS, A0, A1, A2, A3, B, P, ...)                                         \
    static __device__ __forceinline__ void wgmma(T, float(&c)[N / 8][4], const uint32_t &a0,       \
                                                 const uint32_t &a1, const uint32_t &a2,           \
                                                 const uint32_t &a3, uint64_t b, bool add = true)  \
    {                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, " P ", 0;\n"                                \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" SUMS     \
                     "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B ", p, 1, 1, 0;\n}"                  \
                     : __VA_ARGS__                                                                 \
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"((uint32_t)add));            \
    }
WGMMA(Bf16, "bf16", 16, SUMS_8, "%8", "%9", "%10", "%11", "%12", "%13", FOUR(0), FOUR(1))
WGMMA(F16, "f16", 16, SUMS_8, "%8", "%9", "%10", "%11", "%12", "%13", FOUR(0), FOUR(1))
WGMMA(Bf16, "bf16", 32, SUMS_16, "%16", "%17", "%18", "%19", "%20", "%21", SIXTEEN(0))
WGMMA(F16, "f16", 32, SUMS_16, "%16", "%17", "%18", "%19", "%20", "%21", SIXTEEN(0))
WGMMA(Bf16, "bf16", 64, SUMS_32, "%32", "%33", "%34", "%35", "%36", "%37", SIXTEEN(0), SIXTEEN(4))
WGMMA(F16, "f16", 64, SUMS_32, "%32", "%33", "%34", "%35", "%36", "%37", SIXTEEN(0), SIXTEEN(4))
WGMMA(Bf16, "bf16", 128, SUMS_64, "%64", "%65", "%66", "%67", "%68", "%69", ALL64(0))
WGMMA(F16, "f16", 128, SUMS_64, "%64", "%65", "%66", "%67", "%68", "%69", ALL64(0))
WGMMA(Bf16, "bf16", 192, SUMS_96, "%96", "%97", "%98", "%99", "%100", "%101", ALL64(0), SIXTEEN(16),
      SIXTEEN(20))
WGMMA(F16, "f16", 192, SUMS_96, "%96", "%97", "%98", "%99", "%100", "%101", ALL64(0), SIXTEEN(16),
      SIXTEEN(20))

/* wgmma_tiles(T(), c, a, b, add): the same with a in shared memory too, 64 rows in the form of b's;
 * `add` false: c = a b. */
#define WGMMA_TILES(T, NAME, N, SUMS, A, B, P, ...)                                                \
    static __device__ __forceinline__ void wgmma_tiles(T, float(&c)[N / 8][4], uint64_t a,         \
                                                       uint64_t b, bool add)                       \
    {                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, " P ", 0;\n"                                \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" SUMS     \
                     "}, " A ", " B ", p, 1, 1, 0, 0;\n}"                                          \
                     : __VA_ARGS__                                                                 \
                     : "l"(a), "l"(b), "r"((uint32_t)add));                                        \
    }
WGMMA_TILES(Bf16, "bf16", 128, SUMS_64, "%64", "%65", "%66", ALL64(0))
WGMMA_TILES(F16, "f16", 128, SUMS_64, "%64", "%65", "%66", ALL64(0))

/* wgmma_columns(T(), c, a, b, add): wgmma() with a b whose n runs fastest. */
#define WGMMA_COLUMNS(T, NAME, N, SUMS, A0, A1, A2, A3, B, P, ...)                                 \
    static __device__ __forceinline__ void wgmma_columns(                                          \
        T, float(&c)[N / 8][4], const uint32_t(&a)[4], uint64_t b, bool add)                       \
    {                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, " P ", 0;\n"                                \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" SUMS     \
                     "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B ", p, 1, 1, 1;\n}"                  \
                     : __VA_ARGS__                                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((uint32_t)add));    \
    }
WGMMA_COLUMNS(Bf16, "bf16", 64, SUMS_32, "%32", "%33", "%34", "%35", "%36", "%37", SIXTEEN(0),
              SIXTEEN(4))
WGMMA_COLUMNS(F16, "f16", 64, SUMS_32, "%32", "%33", "%34", "%35", "%36", "%37", SIXTEEN(0),
              SIXTEEN(4))
WGMMA_COLUMNS(Bf16, "bf16", 128, SUMS_64, "%64", "%65", "%66", "%67", "%68", "%69", ALL64(0))
WGMMA_COLUMNS(F16, "f16", 128, SUMS_64, "%64", "%65", "%66", "%67", "%68", "%69", ALL64(0))
/* wgmma() of integers: 32 columns, four of a lane in each register of a, and exact sums. */
#define FOUR_INTEGERS(i) "+r"(c[i][0]), "+r"(c[i][1]), "+r"(c[i][2]), "+r"(c[i][3])
#define SIXTEEN_INTEGERS(i)                                                                        \
    FOUR_INTEGERS(i), FOUR_INTEGERS(i + 1), FOUR_INTEGERS(i + 2), FOUR_INTEGERS(i + 3)
#define ALL64_INTEGERS                                                                             \
    SIXTEEN_INTEGERS(0), SIXTEEN_INTEGERS(4), SIXTEEN_INTEGERS(8), SIXTEEN_INTEGERS(12)
#define WGMMA_INTEGERS(N, SUMS, A0, A1, A2, A3, B, P, ...)                                         \
    static __device__ __forceinline__ void wgmma(S8, int32_t(&c)[N / 8][4], const uint32_t &a0,    \
                                                 const uint32_t &a1, const uint32_t &a2,           \
                                                 const uint32_t &a3, uint64_t b, bool add = true)  \
    {                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, " P ", 0;\n"                                \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" SUMS "}, {" A0       \
                     ", " A1 ", " A2 ", " A3 "}, " B ", p;\n}"                                     \
                     : __VA_ARGS__                                                                 \
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"((uint32_t)add));            \
    }
WGMMA_INTEGERS(64, SUMS_32, "%32", "%33", "%34", "%35", "%36", "%37", SIXTEEN_INTEGERS(0),
               SIXTEEN_INTEGERS(4))
WGMMA_INTEGERS(128, SUMS_64, "%64", "%65", "%66", "%67", "%68", "%69", ALL64_INTEGERS)
WGMMA_INTEGERS(192, SUMS_96, "%96", "%97", "%98", "%99", "%100", "%101", ALL64_INTEGERS,
               SIXTEEN_INTEGERS(16), SIXTEEN_INTEGERS(20))
static __device__ __forceinline__ void unset_integer(int32_t *i) { asm volatile("" : "=r"(*i)); }

#undef WGMMA_INTEGERS
#undef FOUR_INTEGERS
#undef SIXTEEN_INTEGERS
#undef ALL64_INTEGERS
#undef WGMMA_TILES
#undef WGMMA_COLUMNS
#undef FOUR
#undef SIXTEEN
#undef ALL64
#undef SUMS_8
#undef SUMS_16
#undef SUMS_32
#undef SUMS_64
#undef SUMS_96
#undef WGMMA
#endif
