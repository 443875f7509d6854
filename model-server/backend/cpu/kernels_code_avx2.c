/* kernels_code_avx2.c - without an instruction for quads: products of 8 by 8 bits are added in
 * pairs to 16 bits, as many as fit, and pairs of those to 32. Compiled alone with -mavx2. */
#include "model-server/backend/cpu/vector_avx2.inc.h"

#define ISA(op) k_##op##_avx2

/* 16 registers, two for 16 lanes. */
enum { CODE_ROWS_MAX = 4, CODE_ROWS_FEW = 2, CODE_ROWS_PANELS = 1, WIDE_ROWS_MAX = 4 };

/* A sum of pairs is at most 2 * 127 n: n of 4 bits fits 8 times, of 5 bits 4 times, of 6 bits
 * twice. n of 8 bits come as two nibbles, with a sum each. */
#define HAS_DOT_PAIRS
#define IN_TURN           _Pragma("GCC unroll 1")
#define TWO_AT_ONCE       _Pragma("GCC unroll 2")
#define PAIRS_QUADS(bits) ((bits) == 5 ? 4u : (bits) == 6 ? 2u : 8u)

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

INLINE struct pairs pairs_add(struct pairs p, i16 n, const int32_t *quad, const int bits)
{
    const __m256i x = _mm256_set1_epi32(*quad);
    if (bits == 8) {
        const i16 nibble = i_set(0x0f0f0f0f), high = i_and(i_shr(n, 4), nibble);
        p.high = (i16){pairs_of(p.high.l, high.l, x), pairs_of(p.high.h, high.h, x)};
        n = i_and(n, nibble);
    }
    p.low = (i16){pairs_of(p.low.l, n.l, x), pairs_of(p.low.h, n.h, x)};
    return p;
}

INLINE i16 pairs_sum(struct pairs p, const int bits)
{
    const i16 sum = {to_quads(p.low.l, 1), to_quads(p.low.h, 1)};
    if (bits < 8)
        return sum;
    return i_add(sum, (i16){to_quads(p.high.l, 16), to_quads(p.high.h, 16)});
}

/* Quads with unpacked nibbles, of 8 lanes, so that the sums of all rows stay in registers. */
INLINE void dot_nibbles(__m256i *sum, const char *w, const int32_t *x, const uint32_t quads,
                        const uint32_t rows)
{
    const __m256i nibble = _mm256_set1_epi32(0x0f0f0f0f);
    __m256i low[WIDE_ROWS_MAX], high[WIDE_ROWS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) low[r] = high[r] = _mm256_setzero_si256();
    TWO_AT_ONCE for (uint32_t i = 0; i < quads; i++)
    {
        const __m256i n =
            _mm256_loadu_si256((const __m256i *)(const void *)(w + (size_t)i * STEP_BYTES));
        const __m256i lower = _mm256_and_si256(n, nibble);
        const __m256i upper = _mm256_and_si256(_mm256_srli_epi32(n, 4), nibble);
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const __m256i q = _mm256_set1_epi32(x[r * CODE_X_WORDS + i]);
            low[r] = pairs_of(low[r], lower, q);
            high[r] = pairs_of(high[r], upper, q);
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] =
        _mm256_add_epi32(to_quads(low[r], 1), to_quads(high[r], 16));
}

/* sum[r] of unpacked quads with all rows. */
INLINE void dot_quads(i16 *sum, const char *w, const int32_t *x, const uint32_t quads,
                      const int bits, const uint32_t rows)
{
    if (bits == 8) {
        __m256i l[WIDE_ROWS_MAX], h[WIDE_ROWS_MAX];
        dot_nibbles(l, w, x, quads, rows);
        dot_nibbles(h, w + STEP_BYTES / 2, x, quads, rows);
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
                pairs_add(part[r], n, x + (size_t)r * CODE_X_WORDS + i, bits);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] = i_add(sum[r], pairs_sum(part[r], bits));
    }
}

#include "model-server/backend/cpu/kernels_code.inc.h"
