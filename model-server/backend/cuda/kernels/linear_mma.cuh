/* linear_mma.cuh - the order of sums of a product on tensor cores. All kernels keep it, so that a
 * row's bits do not depend on the number of rows.
 *
 * K, padded to a multiple of 64 or 128 (k_align), is divided into SLICES slices at such
 * multiples, which depend only on K. Within a slice: one chain of m16n8k16 MMAs into fp32, two
 * for each 32 columns, the first of columns 8t .. 8t + 3, the second of 8t + 4 .. 8t + 7 (t = 0
 * .. 3). The slices' sums are added to 0 in ascending order. Then the scale of the row of weights
 * is applied, the bias last.
 *
 * With int4 and packed matrices the MMAs of each group (two for 32 columns, one for 16, four for
 * the 64 of e4m3 with scales of blocks) are a separate chain. It is multiplied by the group's scale
 * and added to the slice's sum. If a group has an offset, the offset times the sum of its x is
 * subtracted next; that sum is an MMA with ones as weights. Sums of w8a8 are exact, and their order
 * does not matter. An MMA's element depends only on its row of weights and its row of x, not on its
 * position in the tile (assumed of the hardware; checked by `make gpu-check`). */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_LINEAR_MMA_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_LINEAR_MMA_CUH
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"

/* First column of slice s; SLICES gives the padded K. */
static __host__ __device__ __forceinline__ uint32_t slice_begin(uint32_t k, uint32_t s,
                                                                uint32_t quant = QUANT_NONE)
{
    uint32_t align = k_align(quant);
    return (uint32_t)((uint64_t)(k_padded(k, quant) / align) * s / SLICES) * align;
}

/* ---------------------------------------------------------------- formats */

/* How a lane's 16 bytes of a row of weights become fragments: widen(w, p) is its 8 columns 8t .. of
 * the p'th of PARTS 32 columns (of S8: 16 of 64) in the type T that is multiplied. A step, 64 bytes
 * of a row, has STEP columns, a stage of linear_tile STAGE, in STAGES stages. What is widened is
 * exact in both 16-bit types: small integers, or four significant bits.
 *
 *   GROUPED  groups have scales, in SCALES bytes for 16 rows and a step: scale(s, i) is that of
 *            group i of four
 *   OFFSETS  and offsets, where stored.offsets says so
 *   HALVES   a group is 16 columns and an MMA, a lane's columns 4t .. and 16 + 4t .. of 32
 *   WHOLE    a group is a step, and its scale a float */
template <typename TYPE> struct Direct {
    typedef TYPE T;
    static constexpr uint32_t QUANT = T::BYTES == 1 ? QUANT_W8A8 : QUANT_NONE;
    enum { GROUPED = 0, OFFSETS = 0, HALVES = 0, WHOLE = 0, PARTS = 1 };
    enum { STEP = 64 / T::BYTES, STAGE = 2 * STEP, STAGES = 3 };
    static __device__ __forceinline__ uint4 widen(const stored &, uint4 w, int) { return w; }
};

static __device__ __forceinline__ uint32_t part_of(uint4 w, int i)
{
    return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
}

/* Two bytes of w, the odd ones or the even ones, as 16-bit numbers.
 *
 * int8: put bits into the mantissa of a constant, subtract the constant: 128 + the lower 7 bits,
 * less 128 or 256 by the sign (bfloat16 has 7 bits there); 1024 + 128 + the number (float16 has
 * 10). */
static __device__ __forceinline__ uint32_t int8_pair(Bf16, uint32_t w, bool odd)
{
    const uint32_t x = odd ? w >> 8 : w;
    return Bf16::fma2(and_or(x, 0x007f007f, 0x43004300), 0x3f803f80,
                      and_or(x, 0x00800080, 0xc300c300));
}
static __device__ __forceinline__ uint32_t int8_pair(F16, uint32_t w, bool odd)
{
    const uint32_t x = permute(w ^ 0x80808080, 0x64646464, odd ? 0x4341 : 0x4240);
    return F16::fma2(x, 0x3c003c00, 0xe480e480);
}

/* fp8: moves exponent and mantissa to the position of the wider type; the biases differ by 120 and
 * by 8. Shifts to the left are multiplications, which the units of sums also do: those of logic
 * limit these kernels. */
static __device__ __forceinline__ uint32_t fp8_pair(Bf16, uint32_t w, bool odd)
{
    const uint32_t rest = odd ? w >> 4 : w * 16, sign = odd ? w : w * 256;
    return Bf16::fma2(and_or(sign, 0x80008000, rest & 0x07f007f0), 0x7b807b80, 0);
}
static __device__ __forceinline__ uint32_t fp8_pair(F16, uint32_t w, bool odd)
{
    const uint32_t rest = odd ? w >> 1 : w * 128, sign = odd ? w : w * 256;
    return F16::fma2(and_or(sign, 0x80008000, rest & 0x3f803f80), 0x5c005c00, 0);
}

/* As with int8: 128 (1024) + 8 + the number, minus 136 (1032). */
static __device__ __forceinline__ uint32_t int4_pair(Bf16, uint32_t w)
{
    return Bf16::fma2(and_or(w, 0x000f000f, 0x43004300), 0x3f803f80, 0xc308c308);
}
static __device__ __forceinline__ uint32_t int4_pair(F16, uint32_t w)
{
    return F16::fma2(and_or(w, 0x000f000f, 0x64006400), 0x3c003c00, 0xe408e408);
}

/* Pair p of a word of PACKED_FP4: one or two shifts bring its bits to where bfloat16 has them. The
 * biases differ by 126, and halves are counted. */
static __device__ __forceinline__ uint32_t fp4_pair(uint32_t w, int p)
{
    const uint32_t all = 0x81c081c0, sign = 0x80008000, rest = 0x01c001c0;
    const uint32_t x = p == 0   ? w & all
                       : p == 1 ? w * 8 & all
                       : p == 2 ? and_or(w * 2, sign, w >> 3 & rest)
                                : and_or(w * 4, sign, w * 64 & rest);
    return Bf16::fma2(x, 0x7f007f00, 0);
}

/* Of 4 scales, in either half of two words, that of group i. */
static __device__ __forceinline__ float bf16_scale(uint2 scales, int i)
{
    const uint32_t pair = i / 2 ? scales.y : scales.x;
    return __uint_as_float(i % 2 ? pair & 0xffff0000 : pair << 16);
}
static __device__ __forceinline__ float f16_scale(uint2 scales, int i)
{
    const uint32_t pair = i / 2 ? scales.y : scales.x;
    return i % 2 ? high_half(pair) : low_half(pair);
}

/* 8-bit numbers: a scale for each row, for each 16 columns (PACKED_8) or for each 64
 * (PACKED_E4M3). */
template <typename TYPE, uint32_t Q> struct Byte {
    typedef TYPE T;
    static constexpr uint32_t QUANT = Q;
    static constexpr int OFFSETS = Q == PACKED_8, HALVES = OFFSETS, WHOLE = Q == PACKED_E4M3;
    static constexpr int GROUPED = OFFSETS || WHOLE;
    enum { PARTS = 2, STEP = 64, STAGE = 64, STAGES = 3 };
    enum { SCALES = WHOLE ? STEP_SCALES_E4M3 : STEP_SCALES };
    static __device__ __forceinline__ uint32_t pair(uint32_t w, bool odd)
    {
        return Q == QUANT_FP8 || WHOLE ? fp8_pair(T(), w, odd) : int8_pair(T(), w, odd);
    }
    static __device__ __forceinline__ uint4 widen(const stored &, uint4 w, int p)
    {
        uint32_t lo = part_of(w, 2 * p), hi = part_of(w, 2 * p + 1);
        return make_uint4(pair(lo, true), pair(lo, false), pair(hi, true), pair(hi, false));
    }
    static __device__ __forceinline__ float scale(uint2 s, int i) { return f16_scale(s, i); }
};

/* 4 bits: int4, PACKED_4, PACKED_TABLE, PACKED_FP4. */
template <typename TYPE, uint32_t Q> struct Nibble {
    typedef TYPE T;
    static constexpr uint32_t QUANT = Q;
    static constexpr int OFFSETS = Q == PACKED_4;
    enum { GROUPED = 1, HALVES = 0, WHOLE = 0, SCALES = STEP_SCALES };
    enum { PARTS = 4, STEP = 128, STAGE = 128, STAGES = 2 };
    static __device__ __forceinline__ uint4 widen(const stored &m, uint4 w, int p)
    {
        return widen(m, part_of(w, p));
    }
    static __device__ __forceinline__ uint4 widen(const stored &m, uint32_t v)
    {
        if constexpr (Q == PACKED_TABLE) {
            const uint32_t lo = table_numbers(m.table, v), hi = table_numbers(m.table, v >> 16);
            return make_uint4(int8_pair(T(), lo, true), int8_pair(T(), lo, false),
                              int8_pair(T(), hi, true), int8_pair(T(), hi, false));
        }
        if constexpr (Q == PACKED_FP4)
            return make_uint4(fp4_pair(v, 0), fp4_pair(v, 1), fp4_pair(v, 2), fp4_pair(v, 3));
        return make_uint4(int4_pair(T(), v), int4_pair(T(), v >> 4), int4_pair(T(), v >> 8),
                          int4_pair(T(), v >> 12));
    }
    static __device__ __forceinline__ float scale(uint2 s, int i)
    {
        return Q == QUANT_INT4 ? bf16_scale(s, i) : f16_scale(s, i);
    }
};

/* Calls run(format) with the format of the matrix. */
template <typename RUN> static cudaError_t with_format(const stored &w, RUN run)
{
    const bool f16 = w.dtype == DT_F16;
    switch (w.quant) {
    case QUANT_INT8:
        return f16 ? run(Byte<F16, QUANT_INT8>()) : run(Byte<Bf16, QUANT_INT8>());
    case QUANT_W8A8:
        return run(Direct<S8>());
    case QUANT_INT4:
        return f16 ? run(Nibble<F16, QUANT_INT4>()) : run(Nibble<Bf16, QUANT_INT4>());
    case QUANT_FP8:
        return f16 ? run(Byte<F16, QUANT_FP8>()) : run(Byte<Bf16, QUANT_FP8>());
    case PACKED_4:
        return f16 ? run(Nibble<F16, PACKED_4>()) : run(Nibble<Bf16, PACKED_4>());
    case PACKED_TABLE:
        return f16 ? run(Nibble<F16, PACKED_TABLE>()) : run(Nibble<Bf16, PACKED_TABLE>());
    case PACKED_FP4:
        return run(Nibble<Bf16, PACKED_FP4>());
    case PACKED_8:
        return f16 ? run(Byte<F16, PACKED_8>()) : run(Byte<Bf16, PACKED_8>());
    case PACKED_E4M3:
        return f16 ? run(Byte<F16, PACKED_E4M3>()) : run(Byte<Bf16, PACKED_E4M3>());
    }
    return f16 ? run(Direct<F16>()) : run(Direct<Bf16>());
}

/* ---------------------------------------------------------------- products */

/* Two MMAs: w0 and w1 are this lane's fragments of rows g and g + 8, x of row g of x. */
template <typename T>
static __device__ __forceinline__ void mma_pair(typename T::sum c[4], uint4 w0, uint4 w1, uint4 x)
{
    const uint32_t first[4] = {w0.x, w1.x, w0.y, w1.y}, second[4] = {w0.z, w1.z, w0.w, w1.w};
    T::mma(c, first, x.x, x.y);
    T::mma(c, second, x.z, x.w);
}

/* Scales and offsets of a part of a step: of row g or g + 8; with HALVES of both groups. */
template <class F> struct part_scales {
    float scale[1 + F::HALVES], offset[1 + F::HALVES];
    __device__ __forceinline__ void take(uint2 scales, uint2 offsets, int p)
    {
#pragma unroll
        for (int h = 0; h <= F::HALVES; h++) {
            scale[h] = F::scale(scales, (1 + F::HALVES) * p + h);
            offset[h] = F::OFFSETS ? F::scale(offsets, (1 + F::HALVES) * p + h) : 0.0f;
        }
    }
};

/* The sums of x of a part's groups, for its rows 2t and 2t + 1. */
template <class F> struct part_sums {
    float of[1 + F::HALVES][2];
    bool there; /* the matrix has offsets */
    __device__ __forceinline__ void take(const stored &w, uint4 x)
    {
        there = F::OFFSETS && w.offsets;
        if constexpr (F::OFFSETS)
            if (there)
                sum(x);
    }
    __device__ __forceinline__ void sum(uint4 x)
    {
        typedef typename F::T T;
        const uint32_t one = T::pack(1.0f, 1.0f), ones[4] = {one, one, one, one};
        float c[2][4] = {};
        T::mma(c[0], ones, x.x, x.y);
        T::mma(c[F::HALVES], ones, x.z, x.w);
#pragma unroll
        for (int i = 0; i < 2 * (1 + F::HALVES); i++)
            of[i / 2][i % 2] = c[i / 2][i % 2];
    }
};

/* Adds `part`, a group's own chain, to that of the slice. */
template <class F>
static __device__ __forceinline__ void add_group(float c[4], const float part[4], int half,
                                                 const part_scales<F> *rows,
                                                 const part_sums<F> &sums)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        c[i] = fmaf(part[i], rows[i / 2].scale[half], c[i]);
    if constexpr (F::OFFSETS)
        if (sums.there)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[i] = fmaf(-rows[i / 2].offset[half], sums.of[half][i % 2], c[i]);
}

/* Adds a step's own chain to that of the slice; scale: of rows g and g + 8. */
static __device__ __forceinline__ void add_step(float (&c)[4], const float (&step)[4],
                                                const float (&scale)[2])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        c[i] = fmaf(step[i], scale[i / 2], c[i]);
}

/* The products of a part of a step; rows[i]: of rows g and g + 8, if there are groups. `c`: of the
 * slice, or with WHOLE of the step. */
template <class F>
static __device__ __forceinline__ void multiply_part(typename F::T::sum c[4], uint4 w0, uint4 w1,
                                                     uint4 x, const part_scales<F> *rows,
                                                     const part_sums<F> &sums)
{
    typedef typename F::T T;
    if constexpr (F::HALVES) {
        const uint32_t first[4] = {w0.x, w1.x, w0.y, w1.y}, second[4] = {w0.z, w1.z, w0.w, w1.w};
        float part[4] = {}, other[4] = {};
        T::mma(part, first, x.x, x.y);
        add_group<F>(c, part, 0, rows, sums);
        T::mma(other, second, x.z, x.w);
        add_group<F>(c, other, 1, rows, sums);
    } else if constexpr (F::GROUPED && !F::WHOLE) {
        float part[4] = {};
        mma_pair<T>(part, w0, w1, x);
        add_group<F>(c, part, 0, rows, sums);
    } else {
        mma_pair<T>(c, w0, w1, x);
    }
}

/* What the sum of an output's slices is multiplied by, and what is added then. Without them 1 and
 * -0, which change no bit. */
struct output_terms {
    float scale, bias;
};
template <class F>
static __device__ __forceinline__ output_terms terms_of(const linear_args &a, const void *w,
                                                        uint32_t out)
{
    output_terms t = {1.0f, -0.0f};
    if (has_row_scales(F::QUANT)) {
        const size_t at = F::GROUPED ? factors_at(&a.w) : scales_at(a.w.rows, a.w.cols, F::QUANT);
        t.scale = ((const float *)((const char *)w + at))[out];
    }
    if (a.bias)
        t.bias = a.bias[out];
    return t;
}

/* The same of an expert, whose matrix is `w`; bias_of: NULL, or [experts][n]. */
template <class F>
static __device__ __forceinline__ output_terms terms_of_expert(const linear_args &a, const void *w,
                                                               const float *bias_of,
                                                               uint32_t expert, uint32_t out)
{
    output_terms t = terms_of<F>(a, w, out);
    if (bias_of)
        t.bias = bias_of[(size_t)expert * a.w.rows + out];
    return t;
}

/* Converts the sum of all slices to a number of y: row `row` of x. */
template <class F, typename SUM>
static __device__ __forceinline__ float finish(const linear_args &a, SUM sum, const output_terms &t,
                                               size_t row)
{
    const float scale = F::QUANT == QUANT_W8A8 ? t.scale * a.x_scale[row] : t.scale;
    return (float)sum * scale + t.bias;
}
#endif
