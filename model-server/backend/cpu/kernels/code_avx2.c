/* code_avx2.c - without an instruction for quads: products of 8 by 8 bits are added in
 * pairs to 16 bits, as many as fit, and pairs of those to 32. Compiled alone with -mavx2. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx2.inc.h"

#define ISA(op) k_##op##_avx2

/* 16 registers, two for 16 lanes. */
enum { CODE_ROWS_MAX = 4, CODE_ROWS_FEW = 2, WIDE_ROWS_MAX = 4 };
/* Codes of 8 bits have twice the sums, which do not fit the registers beside the outputs of several
 * panels. */
#define CODE_ROWS_PANELS(up) ((up) == UP_4 ? 0 : 1)

/* A sum of pairs is at most 2 * 127 n: n of 4 bits fits 8 times, of 5 bits 4 times, of 6 bits
 * twice, of 7 bits once. n of 8 bits are two nibbles where they are packed, with a sum each. Where
 * they are unpacked, 128 less is multiplied, a signed number. */
#define HAS_DOT_PAIRS
#define IN_TURN           _Pragma("GCC unroll 1")
#define TWO_AT_ONCE       _Pragma("GCC unroll 2")
#define PAIRS_QUADS(bits) ((bits) == 5 ? 4u : (bits) == 6 ? 2u : (bits) == 7 ? 1u : 8u)

struct pairs {
    i16 low, high;
};

/* Hidden from the compiler, which otherwise reorders the sums and keeps all products in
 * memory. */
INLINE __m256i pairs_of(__m256i sum, __m256i n, __m256i x)
{
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(n, x));
    __asm__("" : "+x"(sum));
    return sum;
}

INLINE __m256i to_quads(__m256i pairs, int times)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16((short)times));
}

INLINE struct pairs pairs_none(void) { return (struct pairs){i_set(0), i_set(0)}; }

struct pairs_n {
    i16 low, high;
};

INLINE struct pairs_n pairs_n(i16 n, const int bits)
{
    const i16 nibble = i_set(0x0f0f0f0f);
    if (bits < 8)
        return (struct pairs_n){n, n};
    return (struct pairs_n){i_and(n, nibble), i_and(i_shr(n, 4), nibble)};
}

INLINE struct pairs pairs_add(struct pairs p, struct pairs_n n, const int32_t *quad, const int bits)
{
    const __m256i x = _mm256_set1_epi32(*quad);
    if (bits == 8)
        p.high = (i16){pairs_of(p.high.l, n.high.l, x), pairs_of(p.high.h, n.high.h, x)};
    p.low = (i16){pairs_of(p.low.l, n.low.l, x), pairs_of(p.low.h, n.low.h, x)};
    return p;
}

INLINE i16 pairs_sum(struct pairs p, const int bits)
{
    const i16 sum = {to_quads(p.low.l, 1), to_quads(p.low.h, 1)};
    if (bits < 8)
        return sum;
    return i_add(sum, (i16){to_quads(p.high.l, 16), to_quads(p.high.h, 16)});
}

/* A quad of signed numbers. Their sign is moved to x, because one factor has none. */
INLINE __m256i signed_quad(__m256i sum, __m256i magnitude, __m256i n, __m256i x)
{
    const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, n));
    sum = _mm256_add_epi32(sum, to_quads(pairs, 1));
    __asm__("" : "+x"(sum));
    return sum;
}

/* The sums of n - 128, with n of 8 bits, of 8 lanes, so that those of all rows stay in
 * registers. */
INLINE void dot_signed(__m256i *sum, const char *w, const int32_t *x, const uint32_t quads,
                       const uint32_t rows)
{
    UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] = _mm256_setzero_si256();
    UNROLL for (uint32_t i = 0; i < quads; i++)
    {
        const __m256i *at = (const __m256i *)(const void *)(w + (size_t)i * STEP_BYTES);
        const __m256i n = _mm256_xor_si256(_mm256_loadu_si256(at), _mm256_set1_epi8(-128));
        const __m256i magnitude = _mm256_abs_epi8(n);
        UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] =
            signed_quad(sum[r], magnitude, n, _mm256_set1_epi32(x[r * CODE_X_WORDS + i]));
    }
}

/* sum[r] of unpacked quads with all rows, less SHIFT(bits) times the sum of x. */
#define SHIFT(bits) ((bits) == 8 ? 128 : 0)
INLINE void dot_quads(i16 *sum, const char *w, const int32_t *x, const uint32_t quads,
                      const int bits, const uint32_t rows)
{
    if (bits == 8) {
        __m256i l[WIDE_ROWS_MAX], h[WIDE_ROWS_MAX];
        dot_signed(l, w, x, quads, rows);
        dot_signed(h, w + STEP_BYTES / 2, x, quads, rows);
        UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] = (i16){l[r], h[r]};
        return;
    }
    const uint32_t once = quads < PAIRS_QUADS(bits) ? quads : PAIRS_QUADS(bits);
    UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] = i_set(0);
    IN_TURN for (uint32_t first = 0; first < quads; first += once)
    {
        struct pairs part[WIDE_ROWS_MAX];
        UNROLL for (uint32_t r = 0; r < rows; r++) part[r] = pairs_none();
        TWO_AT_ONCE for (uint32_t i = first; i < first + once; i++)
        {
            const i16 n = i_load(w + (size_t)i * STEP_BYTES);
            UNROLL for (uint32_t r = 0; r < rows; r++) part[r] =
                pairs_add(part[r], pairs_n(n, bits), x + (size_t)r * CODE_X_WORDS + i, bits);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] = i_add(sum[r], pairs_sum(part[r], bits));
    }
}

#include "model-server/backend/cpu/kernels/code.inc.h"
