/* attention_cache.cuh - pieces of 32 keys, or values, in shared memory, and their conversion for
 * each type of cache to operands of tensor cores, for attention_split.cuh and attention_shared.cuh.
 *
 * Keys are stored as [64 bytes][key], 16-byte chunk c of 4 at c ^ (key / 2 % 4, its two bits
 * exchanged). This avoids bank conflicts in the copies, in ldmatrix and in 8-byte fragment loads.
 *
 * 16-bit numbers: MMA m of a score has dimensions 16 m .. 16 m + 15, in their order. 8-bit numbers
 * are widened in registers, exactly, to bf16, without their scales. Their dimensions are assigned
 * to the MMAs as linear_mma.cuh assigns columns, 32 at a time; of the last 16, if any, a lane has 4
 * consecutive ones. ldmatrix moves pairs of them. So of 16 dimensions of values one MMA has the
 * even ones, and the next the odd ones. 4-bit numbers (hadamard.cuh) are assigned to the MMAs of
 * scores as 8-bit ones are. Of values ldmatrix moves four; of 32 dimensions an MMA has two
 * neighbours of each eight. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_CACHE_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_CACHE_CUH
#include "model-server/backend/cuda/kernels/device.cuh"

enum { KEYS = 32 };

/* 32 rows of BYTES bytes. */
template <int BYTES> struct tile {
    unsigned char b[(BYTES + 63) / 64][KEYS][64];
    __device__ __forceinline__ unsigned char *chunk(uint32_t key, uint32_t c)
    {
        const uint32_t turn = (key / 2 & 1) * 2 | (key / 4 & 1);
        return &b[c / 4][key][(c % 4 ^ turn) * 16];
    }
};

/* A type defines the type of its MMAs; BITS of a number; the smallest number of dimensions of
 * values() (GROUP); which dimensions a lane has in fragment m of q: low(m, t),
 * + 1, high(m, t), + 1; the dot products of 16 rows of q with 32 keys; the addition of 32 weighted
 * values to sums, of dimensions from `first` on; and the pairs of a row's sums. q.get(m, f):
 * fragment m.
 */
template <typename T> struct Cache16 {
    typedef T Mma;
    enum { BITS = 16, SCALED = 0, GROUP = 16 };
    template <int DIM> static __device__ __forceinline__ uint32_t low(int m, uint32_t t)
    {
        return 16 * m + 2 * t;
    }
    template <int DIM> static __device__ __forceinline__ uint32_t high(int m, uint32_t t)
    {
        return 16 * m + 2 * t + 8;
    }
    template <int DIM, typename Q, typename K>
    static __device__ __forceinline__ void scores(const Q &q, K &k, float (*x)[4])
    {
        const uint32_t lane = threadIdx.x % 32;
        uint32_t q0[4], q1[4], f[4];
#pragma unroll
        for (int j = 0; j < DIM / 32; j++) {
            q.get(2 * j, q0), q.get(2 * j + 1, q1);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                load_matrix(f, k.chunk(8 * n + lane % 8, 4 * j + lane / 8));
                T::mma(x[n], q0, f[0], f[1]);
                T::mma(x[n], q1, f[2], f[3]);
            }
        }
        if constexpr (DIM % 32 != 0) {
            q.get(DIM / 16 - 1, q0);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n += 2) {
                load_matrix(f,
                            k.chunk(8 * n + lane / 16 * 8 + lane % 8, DIM / 32 * 4 + lane / 8 % 2));
                T::mma(x[n], q0, f[0], f[1]);
                T::mma(x[n + 1], q0, f[2], f[3]);
            }
        }
    }
    /* o[d]: dims 8 d .. 8 d + 7 */
    template <int DIMS, typename V>
    static __device__ __forceinline__ void values(float (&o)[DIMS / 8][4], const uint32_t (*p)[4],
                                                  V &v, uint32_t first)
    {
        const uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++)
#pragma unroll
            for (int d = 0; d < DIMS / 16; d++) {
                uint32_t f[4];
                load_matrix_trans(f, v.chunk(16 * j + lane % 16, first / 8 + 2 * d + lane / 16));
                T::mma(o[2 * d], p[j], f[0], f[1]);
                T::mma(o[2 * d + 1], p[j], f[2], f[3]);
            }
    }
    /* Calls fn(dim, lo, hi) with this lane's pairs of a row's sums; i: row g or g + 8. */
    template <int DIMS, typename FN>
    static __device__ __forceinline__ void pairs(const float (&o)[DIMS / 8][4], int i, FN fn)
    {
#pragma unroll
        for (int d = 0; d < DIMS / 8; d++)
            fn(8 * d + threadIdx.x % 4 * 2, o[d][2 * i], o[d][2 * i + 1]);
    }
};

/* W::widen(): two numbers, each a byte in the low half of 16 bits, to two bf16. */
template <typename W> struct Cache8 {
    typedef Bf16 Mma;
    enum { BITS = 8, SCALED = 1, GROUP = 16 };
    template <int DIM> static __device__ __forceinline__ uint32_t low(int m, uint32_t t)
    {
        return m / 2 < DIM / 32 ? 32 * (m / 2) + 8 * t + 4 * (m % 2) : 16 * m + 4 * t;
    }
    template <int DIM> static __device__ __forceinline__ uint32_t high(int m, uint32_t t)
    {
        return low<DIM>(m, t) + 2;
    }
    static __device__ __forceinline__ void widen4(uint32_t v, uint32_t *f)
    {
        f[0] = W::widen(__byte_perm(v, 0, 0x4140));
        f[1] = W::widen(__byte_perm(v, 0, 0x4342));
    }
    template <int DIM, typename Q, typename K>
    static __device__ __forceinline__ void scores(const Q &q, K &k, float (*x)[4])
    {
        const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        uint32_t q0[4], q1[4], f[4];
#pragma unroll
        for (int j = 0; j < DIM / 32; j++) {
            q.get(2 * j, q0), q.get(2 * j + 1, q1);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                const uint2 v = *(const uint2 *)(k.chunk(8 * n + g, 2 * j + t / 2) + t % 2 * 8);
                widen4(v.x, f), widen4(v.y, f + 2);
                Mma::mma(x[n], q0, f[0], f[1]);
                Mma::mma(x[n], q1, f[2], f[3]);
            }
        }
        if constexpr (DIM % 32 != 0) {
            q.get(DIM / 16 - 1, q0);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                widen4(*(const uint32_t *)(k.chunk(8 * n + g, DIM / 32 * 2) + 4 * t), f);
                Mma::mma(x[n], q0, f[0], f[1]);
            }
        }
    }
    /* o[2 d]: the even ones of dims 16 d .. 16 d + 15; o[2 d + 1]: the odd ones */
    template <int DIMS, typename V>
    static __device__ __forceinline__ void values(float (&o)[DIMS / 8][4], const uint32_t (*p)[4],
                                                  V &v, uint32_t first)
    {
#pragma unroll
        for (int d = 0; d < DIMS / 16; d++) {
            uint32_t f[4]; /* 8 keys each */
            load_matrix_trans(f, v.chunk(threadIdx.x % 32, first / 16 + d));
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++) {
                Mma::mma(o[2 * d], p[j], W::widen(f[2 * j]), W::widen(f[2 * j + 1]));
                Mma::mma(o[2 * d + 1], p[j], W::widen(f[2 * j] >> 8), W::widen(f[2 * j + 1] >> 8));
            }
        }
    }
    template <int DIMS, typename FN>
    static __device__ __forceinline__ void pairs(const float (&o)[DIMS / 8][4], int i, FN fn)
    {
#pragma unroll
        for (int d = 0; d < DIMS / 16; d++) {
            const uint32_t dim = 16 * d + threadIdx.x % 4 * 4;
            fn(dim, o[2 * d][2 * i], o[2 * d + 1][2 * i]);
            fn(dim + 2, o[2 * d][2 * i + 1], o[2 * d + 1][2 * i + 1]);
        }
    }
};

struct Cache4 {
    typedef Bf16 Mma;
    enum { BITS = 4, SCALED = 1, GROUP = 32 };
    template <int DIM> static __device__ __forceinline__ uint32_t low(int m, uint32_t t)
    {
        return 32 * (m / 2) + 8 * t + 4 * (m % 2);
    }
    template <int DIM> static __device__ __forceinline__ uint32_t high(int m, uint32_t t)
    {
        return low<DIM>(m, t) + 2;
    }
    /* Nibbles 0 and 4 as bf16: 128 + 8 + the number, minus 136. */
    static __device__ __forceinline__ uint32_t widen(uint32_t v)
    {
        return Bf16::fma2((v & 0x000f000f) | 0x43004300, 0x3f803f80 /* 1 */, 0xc308c308);
    }
    template <int DIM, typename Q, typename K>
    static __device__ __forceinline__ void scores(const Q &q, K &k, float (*x)[4])
    {
        const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        uint32_t q0[4], q1[4];
#pragma unroll
        for (int j = 0; j < DIM / 32; j++) {
            q.get(2 * j, q0), q.get(2 * j + 1, q1);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                const uint32_t v = *(const uint32_t *)(k.chunk(8 * n + g, j) + 4 * t);
                Mma::mma(x[n], q0, widen(v), widen(v >> 4));
                Mma::mma(x[n], q1, widen(v >> 8), widen(v >> 12));
            }
        }
    }
    /* o[4 d + i]: of dims 32 d .. 32 d + 31, 8 u + 2 i and the next for u < 4 */
    template <int DIMS, typename V>
    static __device__ __forceinline__ void values(float (&o)[DIMS / 8][4], const uint32_t (*p)[4],
                                                  V &v, uint32_t first)
    {
#pragma unroll
        for (int d = 0; d < DIMS / 32; d++) {
            uint32_t f[4]; /* 8 keys each */
            load_matrix_trans(f, v.chunk(threadIdx.x % 32, first / 32 + d));
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    Mma::mma(o[4 * d + i], p[j], widen(f[2 * j] >> 4 * i),
                             widen(f[2 * j + 1] >> 4 * i));
        }
    }
    template <int DIMS, typename FN>
    static __device__ __forceinline__ void pairs(const float (&o)[DIMS / 8][4], int i, FN fn)
    {
#pragma unroll
        for (int d = 0; d < DIMS / 8; d++)
            fn(d / 4 * 32 + threadIdx.x % 4 * 8 + d % 4 * 2, o[d][2 * i], o[d][2 * i + 1]);
    }
};

/* A byte as bf16: 128 + its 7 low bits, minus 128, or minus 256 if it is negative. */
struct WidenI8 {
    static __device__ __forceinline__ uint32_t widen(uint32_t v)
    {
        const uint32_t low = (v & 0x007f007f) | 0x43004300, sign = (v & 0x00800080) | 0x43004300;
        return Bf16::fma2(sign, 0xbf80bf80 /* -1 */, low);
    }
};
/* Sign, exponent and mantissa in their positions, times 2^112 for the difference of the
 * exponents' biases, which also handles subnormal numbers. */
struct WidenFp8 {
    static __device__ __forceinline__ uint32_t widen(uint32_t v)
    {
        const uint32_t placed = (v & 0x00800080) << 8 | (v & 0x007f007f) << 4;
        return Bf16::fma2(placed, 0x77807780, 0x80008000 /* -0 */);
    }
};
#endif
