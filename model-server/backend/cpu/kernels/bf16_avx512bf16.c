/* bf16_avx512bf16.c - bfloat16 products: one instruction for both columns of a pair, in
 * the order of base_ref.c; and x in pairs for them. Compiled alone with -mavx512bf16. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"
#include <string.h>

#define ISA(op) k_##op##_avx512bf16

enum { ROWS_MAX = 12 };
#define PANELS(rows) ((rows) <= 6 ? 4 : (rows) <= 8 ? 3 : 2)

enum panel { PANEL_F32, PANEL_INT8, PANEL_FP8, PANEL_BF16X2 };

INLINE v16 step_weights(const char *at, enum panel type, int which)
{
    (void)type, (void)which;
    return v_load((const float *)at);
}

INLINE v16 dot2(v16 w, v16 x, v16 sum) { return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x); }

#define TILE_FMA(w, x, sum, rows) dot2(w, x, sum)
#include "model-server/backend/cpu/kernels/tile.inc.h"

TILE_KERNEL(tile_bf16x2, PANEL_BF16X2)

#include "model-server/backend/cpu/kernels/bf16_bits.inc.h"

enum { PAIRS = LANES, COLS = 2 * LANES };

/* n <= COLS columns as pairs, the rest zero. Not vcvtne2ps2bf16: it reads subnormal numbers as
 * zero, also those that are rounded to a normal one. */
INLINE i16 pairs_of(const float *x, uint32_t n)
{
    const i16 lower = bf16_bits(v_load_n(x, n));
    const i16 upper = n > LANES ? bf16_bits(v_load_n(x + LANES, n - LANES)) : i_set(0);
    return _mm512_mask_blend_epi32(0xff00, _mm512_castsi256_si512(_mm512_cvtepi32_epi16(lower)),
                                   _mm512_inserti64x4(i_set(0), _mm512_cvtepi32_epi16(upper), 1));
}

/* Pair i of four rows, at quarter i / 4 of u[i % 4]. */
INLINE void transpose(i16 u[4], const i16 p[4])
{
    const i16 a = _mm512_unpacklo_epi32(p[0], p[1]), b = _mm512_unpacklo_epi32(p[2], p[3]);
    const i16 c = _mm512_unpackhi_epi32(p[0], p[1]), d = _mm512_unpackhi_epi32(p[2], p[3]);
    u[0] = _mm512_unpacklo_epi64(a, b), u[1] = _mm512_unpackhi_epi64(a, b);
    u[2] = _mm512_unpacklo_epi64(c, d), u[3] = _mm512_unpackhi_epi64(c, d);
}

INLINE void store4(float *dst, uint32_t xs, const i16 u[4])
{
#define QUARTER(q)                                                                                 \
    UNROLL for (uint32_t i = 0; i < 4; i++)                                                        \
        _mm_storeu_si128((__m128i *)(void *)(dst + (size_t)(4 * (q) + i) * xs),                    \
                         _mm512_extracti32x4_epi32(u[i], q));
    QUARTER(0)
    QUARTER(1)
    QUARTER(2)
    QUARTER(3)
#undef QUARTER
}

/* Fewer than PAIRS pairs of four rows. */
static void store_some(float *dst, uint32_t xs, const i16 p[4], uint32_t pairs)
{
    float words[4][PAIRS];
    for (int r = 0; r < 4; r++)
        v_store(words[r], i_float(p[r]));
    for (uint32_t k = 0; k < pairs; k++)
        for (int r = 0; r < 4; r++)
            memcpy(dst + (size_t)k * xs + r, &words[r][k], sizeof(*dst));
}

static void pack4(float *dst, uint32_t xs, const float *const *src, uint32_t n)
{
    for (uint32_t k = 0; k < n; k += COLS, dst += (size_t)PAIRS * xs) {
        const uint32_t some = n - k < COLS ? n - k : COLS;
        i16 p[4], u[4];
        UNROLL for (int r = 0; r < 4; r++) p[r] = pairs_of(src[r] + k, some);
        if (some < COLS) {
            store_some(dst, xs, p, (some + 1) / 2);
            return;
        }
        transpose(u, p);
        store4(dst, xs, u);
    }
}

/* Of one or two rows, which have no padding between their words. */
static void pack_few(float *dst, const float *const *src, uint32_t rows, uint32_t n)
{
    float words[PAIRS];
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < n; k += COLS) {
            const uint32_t some = n - k < COLS ? n - k : COLS;
            v_store(words, i_float(pairs_of(src[r] + k, some)));
            for (uint32_t i = 0; i < (some + 1) / 2; i++)
                memcpy(dst + (size_t)(k / 2 + i) * rows + r, &words[i], sizeof(*dst));
        }
}

void k_pack_bf16x2_avx512bf16(float *dst, const float *const *src, uint32_t rows, uint32_t n)
{
    const uint32_t xs = tile_stride(rows);
    if (rows <= 2) {
        pack_few(dst, src, rows, n);
        return;
    }
    for (uint32_t r = 0; r < rows; r += 4) {
        const float *four[4]; /* the padding of a last group repeats a row */
        for (uint32_t i = 0; i < 4; i++)
            four[i] = src[r + i < rows ? r + i : rows - 1];
        pack4(dst + r, xs, four, n);
    }
}
