/* square_kv_avx512amx.c - operands of attention in squares, and its sums of few rows in the
 * tile registers of AMX: kv_page.h. Compiled alone; AMX is inline assembly, as in
 * squares_amx.c. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"
// vectors first
#include "model-server/backend/cpu/kernels/bf16_bits.inc.h"
#include "model-server/backend/cpu/kernels/tiles.inc.h"

enum { STEP_KEYS = 2 * KV_PAGE };

/* Which of the 16 positions of page `page` of the list are in [lo, hi). `page` -1 is before it. */
INLINE __mmask16 counts(uint32_t lo, uint32_t hi, int64_t page)
{
    const int64_t first = lo - page * KV_PAGE, end = hi - page * KV_PAGE;
    const uint32_t below = first <= 0 ? 0 : first >= KV_PAGE ? 0xffff : (1u << first) - 1;
    const uint32_t upto = end <= 0 ? 0 : end >= KV_PAGE ? 0xffff : (1u << end) - 1;
    return page < 0 ? 0 : (__mmask16)(upto & ~below);
}

/* Numbers of 16 bits: those of `even`, and beside each that of `odd`. */
INLINE __m512i beside(__m512i even, __m512i odd)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, even, odd);
}

/* A pair of positions, of `dims` dimensions, 32 at a time: of each of these, d and d + 16 share 32
 * bits. `panel`: from one panel to the next. Returns what is not finite. */
INLINE __mmask32 place_pair(char *to, size_t panel, const char *even, const char *odd,
                            uint32_t dims)
{
    const __m512i top = _mm512_set1_epi16(0x7f80);
    __mmask32 bad = 0;
    for (uint32_t d = 0; d < dims; d += 32, to += 2 * panel) {
        const size_t at = (size_t)d * 2;
        const __m512i a = even ? _mm512_loadu_si512(even + at) : _mm512_setzero_si512();
        const __m512i b = odd ? _mm512_loadu_si512(odd + at) : _mm512_setzero_si512();
        bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(a, top), top);
        bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(b, top), top);
        _mm512_storeu_si512(to, beside(a, _mm512_slli_epi32(b, 16)));
        _mm512_storeu_si512(to + panel, beside(_mm512_srli_epi32(a, 16), b));
    }
    return bad;
}

INLINE void fetch_row(const char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i, 0, 2);
}

/* Dimensions [first, first + dims) of a step, as panels at `to`; its pages KV_AHEAD further on are
 * prefetched. */
INLINE __mmask32 place_values(const struct kv_square_values *t, char *to, size_t panel, uint32_t s,
                              uint32_t first, uint32_t dims)
{
    const size_t row = (size_t)t->dims * 2, bytes = (size_t)dims * 2, from = (size_t)first * 2;
    const int64_t page = (int64_t)2 * s - t->at.lead;
    const __mmask16 even = counts(t->at.first, t->at.end, page);
    const __mmask16 odd = counts(t->at.first, t->at.end, page + 1);
    const char *const *pages = t->pages + page;
    const char *a = even ? pages[0] + from : NULL, *b = odd ? pages[1] + from : NULL;
    const char *next[] = {even ? pages[KV_AHEAD] + from : to,
                          odd ? pages[1 + KV_AHEAD] + from : to};
    __mmask32 bad = 0;
    for (uint32_t c = 0; c < KV_PAGE; c++) {
        const size_t at = c * row;
        fetch_row(next[0] + at, bytes);
        fetch_row(next[1] + at, bytes);
        bad |= place_pair(to + (size_t)c * SQUARE_STEP_BYTES, panel, even >> c & 1 ? a + at : NULL,
                          odd >> c & 1 ? b + at : NULL, dims);
    }
    return bad;
}

bool k_square_values_avx512amx(const struct kv_square_values *t)
{
    const size_t panel = (size_t)t->at.steps * SQUARE_BYTES;
    __mmask32 bad = 0;
    for (uint32_t s = 0; s < t->at.steps; s++)
        bad |= place_values(t, t->dst + (size_t)s * SQUARE_BYTES, panel, s, 0, t->dims);
    return !bad;
}

/* The upper halves are numbers that truncation leaves; each rest has 8 bits less. */
INLINE void split(__m512i part[SQUARE_PARTS], __m512 w)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    const __m512 high = _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(w), upper));
    const __m512i rest = _mm512_castps_si512(_mm512_sub_ps(w, high));
    const __m512 middle = _mm512_castsi512_ps(_mm512_and_si512(rest, upper));
    part[2] = _mm512_castps_si512(w);
    part[1] = rest;
    part[0] = _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(rest), middle));
}

/* 32 weights of a row, `part` bytes from one part to the next. */
INLINE void place_step(char *to, size_t part, __m512 even, __m512 odd, const uint32_t parts)
{
    __m512i a[SQUARE_PARTS], b[SQUARE_PARTS];
    if (parts == 1) {
        _mm512_storeu_si512(to, beside(bf16_bits(even), _mm512_slli_epi32(bf16_bits(odd), 16)));
        return;
    }
    split(a, even);
    split(b, odd);
    for (int p = 0; p < SQUARE_PARTS; p++)
        _mm512_storeu_si512(to + p * part, beside(_mm512_srli_epi32(a[p], 16), b[p]));
}

INLINE void place_row(const struct kv_square_weights *t, char *dst, const float *src, uint32_t lo,
                      uint32_t hi, const uint32_t parts)
{
    const size_t part = (size_t)t->square * SQUARE_STEP_BYTES;
    const int64_t lead = (int64_t)t->lead * KV_PAGE;
    for (uint32_t s = 0; s < t->steps; s++, dst += parts * part) {
        const int64_t at = (int64_t)s * STEP_KEYS - lead, page = (int64_t)2 * s - t->lead;
        if (at >= lo && at + STEP_KEYS <= hi)
            place_step(dst, part, _mm512_loadu_ps(src + at), _mm512_loadu_ps(src + at + KV_PAGE),
                       parts);
        else /* what is masked is not read */
            place_step(dst, part, _mm512_maskz_loadu_ps(counts(lo, hi, page), src + at),
                       _mm512_maskz_loadu_ps(counts(lo, hi, page + 1), src + at + KV_PAGE), parts);
    }
}

INLINE void place_rows(const struct kv_square_weights *t, const uint32_t parts)
{
    const size_t below = (size_t)t->steps * parts * t->square * SQUARE_STEP_BYTES;
    const uint32_t all = (t->rows + t->square - 1) / t->square * t->square;
    for (uint32_t r = 0; r < all; r++) {
        const bool is = r < t->rows;
        char *dst =
            t->dst + (size_t)(r / t->square) * below + (size_t)(r % t->square) * SQUARE_STEP_BYTES;
        place_row(t, dst, t->src + (size_t)(is ? r : 0) * KV_SCORES_LD, is ? t->seen[r].lo : 0,
                  is ? t->seen[r].hi : 0, parts);
    }
}

void k_square_weights_avx512amx(const struct kv_square_weights *t)
{
    if (t->parts == 1)
        place_rows(t, 1);
    else
        place_rows(t, SQUARE_PARTS);
}

/* ---------------------------------------------------------------- sums of few rows */

enum { WIDE = 4, WIDE_DIMS = WIDE * LANES }; /* panels at a time: their sums stay in registers */

#define MULTIPLY(sum, x, w) __asm__ volatile("tdpbf16ps %%tmm" #w ", %%tmm" #x ", %%tmm" #sum ::)

INLINE void multiply_step(const char *x, size_t part, const char *w, const uint32_t wide,
                          const uint32_t parts)
{
    LOAD(4, x, 64);
    if (parts > 1) {
        LOAD(5, x + part, 64);
        LOAD(6, x + 2 * part, 64);
    }
#define PANEL(n)                                                                                   \
    do {                                                                                           \
        LOAD(7, w + (size_t)(n)*SQUARE_BYTES, 64);                                                 \
        MULTIPLY(n, 4, 7);                                                                         \
        if (parts > 1) {                                                                           \
            MULTIPLY(n, 5, 7);                                                                     \
            MULTIPLY(n, 6, 7);                                                                     \
        }                                                                                          \
    } while (0)
    PANEL(0);
    PANEL(1);
    if (wide > 2) {
        PANEL(2);
        PANEL(3);
    }
#undef PANEL
}

/* `wide` panels from dimension `first` on. A step is laid out while the one before it is
 * multiplied. */
INLINE __mmask32 sum_panels(const struct kv_square_sum *t, uint32_t first, const uint32_t wide,
                            const uint32_t parts)
{
    _Alignas(64) char laid[2][WIDE * SQUARE_BYTES];
    const size_t part = (size_t)t->rows * SQUARE_STEP_BYTES, ld = t->ld * sizeof(float);
    const uint32_t dims = wide * LANES, steps = t->values.at.steps;
    const char *x = t->x;
    char *sums = (char *)(t->sums + first);
    __mmask32 bad = place_values(&t->values, laid[0], SQUARE_BYTES, 0, first, dims);
    ZERO(0);
    ZERO(1);
    ZERO(2);
    ZERO(3);
    for (uint32_t s = 0; s < steps; s++, x += parts * part) {
        if (s + 1 < steps)
            bad |= place_values(&t->values, laid[(s + 1) % 2], SQUARE_BYTES, s + 1, first, dims);
        multiply_step(x, part, laid[s % 2], wide, parts);
    }
    STORE(0, sums, ld);
    STORE(1, sums + 64, ld);
    if (wide > 2) {
        STORE(2, sums + 128, ld);
        STORE(3, sums + 192, ld);
    }
    return bad;
}

INLINE bool sum_all(const struct kv_square_sum *t, const uint32_t parts)
{
    uint32_t first = 0;
    __mmask32 bad = 0;
    for (; first + WIDE_DIMS <= t->values.dims; first += WIDE_DIMS)
        bad |= sum_panels(t, first, WIDE, parts);
    if (first < t->values.dims)
        bad |= sum_panels(t, first, 2, parts);
    return !bad;
}

bool k_square_sum_avx512amx(const struct kv_square_sum *t)
{
    struct tile_config shapes = all_square;
    for (int i = 0; i < 7; i++) /* of sums and of x */
        shapes.rows[i] = (uint8_t)t->rows;
    TILES_BEGIN(shapes);
    const bool finite = t->parts == 1 ? sum_all(t, 1) : sum_all(t, SQUARE_PARTS);
    TILES_END();
    return finite;
}
