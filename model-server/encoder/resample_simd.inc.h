/* resample_simd.inc.h - the resampling kernels for vectors of ROWS lanes of 128 bits.
 *
 * The product of a byte and a weight is computed as two 16-bit products (struct taps), and an
 * instruction adds the products of two taps. Included by one file per instruction set, which
 * defines VEC, ROWS, V(operation) and the other macros that are used here. */
#ifndef MODEL_SERVER_ENCODER_RESAMPLE_SIMD_INC_H
#define MODEL_SERVER_ENCODER_RESAMPLE_SIMD_INC_H
#include <string.h>

struct parts {
    VEC low, high;
};

static inline VEC pair(const int16_t *k)
{
    int32_t both;
    memcpy(&both, k, sizeof(both));
    return V(set1_epi32)(both);
}

static inline void add_pair(struct parts *sum, VEC bytes, VEC low, VEC high)
{
    sum->low = V(add_epi32)(sum->low, V(madd_epi16)(bytes, low));
    sum->high = V(add_epi32)(sum->high, V(madd_epi16)(bytes, high));
}

static inline VEC whole(struct parts sum)
{
    return V(srai_epi32)(V(add_epi32)(V(slli_epi32)(sum.high, TAP_LOW_BITS), sum.low), TAP_BITS);
}

static inline struct parts half_up(void)
{
    return (struct parts){V(set1_epi32)(1 << (TAP_BITS - 1)), V(set1_epi32)(0)};
}

/* Pixel i of ROWS output rows. */
static inline void pixels_of_rows(uint8_t *to, size_t to_bytes, const uint8_t *from,
                                  size_t from_bytes, const struct taps *t, uint32_t i)
{
    /* The bytes of two pixels in pairs of one channel, widened to 16 bits. */
    const VEC front =
        EVERY_LANE(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    const VEC back =
        EVERY_LANE(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    const int16_t *low = t->low + (size_t)i * t->stride, *high = t->high + (size_t)i * t->stride;
    struct parts sum = half_up();
    from += 3 * (size_t)t->first[i];
    for (uint32_t j = 0; j < t->count[i]; j += TAP_GROUP, from += 3 * TAP_GROUP) {
        const VEC four = load_rows(from, from_bytes);
        add_pair(&sum, V(shuffle_epi8)(four, front), pair(low + j), pair(high + j));
        add_pair(&sum, V(shuffle_epi8)(four, back), pair(low + j + 2), pair(high + j + 2));
    }
    const VEC words = V(packs_epi32)(whole(sum), whole(sum));
    store_rows(to + 3 * (size_t)i, to_bytes, V(packus_epi16)(words, words));
}

void ISA(across)(uint8_t *to, size_t to_bytes, const uint8_t *from, size_t from_bytes,
                 uint32_t from_pixels, uint32_t rows, const struct taps *t)
{
    const size_t row = 3 * (size_t)from_pixels;
    uint32_t r = 0, n = t->n;
    const size_t reach = (t->most + TAP_GROUP - 1) / TAP_GROUP * TAP_GROUP;
    /* A load has 16 bytes: outputs whose load might exceed the row are computed by the reference
     * variant. */
    while (n > 0 && 3 * (t->first[n - 1] + reach) + 4 > row)
        n--;
    const size_t skip = (size_t)n * t->stride;
    const struct taps rest = {.n = t->n - n,
                              .stride = t->stride,
                              .first = t->first + n,
                              .count = t->count + n,
                              .k = t->k + skip};
    for (; r + ROWS <= rows; r += ROWS, to += ROWS * to_bytes, from += ROWS * from_bytes) {
        for (uint32_t i = 0; i < n; i++)
            pixels_of_rows(to, to_bytes, from, from_bytes, t, i);
        resample_across_ref(to + 3 * (size_t)n, to_bytes, from, from_bytes, from_pixels, ROWS,
                            &rest);
    }
    for (; r < rows; r++, to += to_bytes, from += from_bytes) { /* all lanes have the same row */
        for (uint32_t i = 0; i < n; i++)
            pixels_of_rows(to, 0, from, 0, t, i);
        resample_across_ref(to + 3 * (size_t)n, to_bytes, from, from_bytes, from_pixels, 1, &rest);
    }
}

enum { BYTES = ROWS * 16 };

static inline VEC load_at(const uint8_t *p) { return VLOAD((const void *)p); }

/* BYTES bytes from `at` on. Every operation stays within lanes of 128 bits, so the packing
 * operations restore the order of the bytes. */
static inline void block_down(uint8_t *to, const uint8_t *const *from, size_t at,
                              const int16_t *low, const int16_t *high, uint32_t count)
{
    const VEC zero = V(set1_epi32)(0);
    struct parts s0 = half_up(), s1 = s0, s2 = s0, s3 = s0;
    for (uint32_t j = 0; j < count; j += 2) {
        const VEC a = load_at(from[j] + at), b = j + 1 < count ? load_at(from[j + 1] + at) : zero;
        const VEC front = V(unpacklo_epi8)(a, b), back = V(unpackhi_epi8)(a, b);
        const VEC l = pair(low + j), h = pair(high + j);
        add_pair(&s0, V(unpacklo_epi8)(front, zero), l, h);
        add_pair(&s1, V(unpackhi_epi8)(front, zero), l, h);
        add_pair(&s2, V(unpacklo_epi8)(back, zero), l, h);
        add_pair(&s3, V(unpackhi_epi8)(back, zero), l, h);
    }
    VSTORE((void *)(to + at), V(packus_epi16)(V(packs_epi32)(whole(s0), whole(s1)),
                                              V(packs_epi32)(whole(s2), whole(s3))));
}

void ISA(down)(uint8_t *to, const uint8_t *const *from, size_t n, const struct taps *t, uint32_t i)
{
    const int16_t *low = t->low + (size_t)i * t->stride, *high = t->high + (size_t)i * t->stride;
    if (n < BYTES) {
        resample_down_ref(to, from, n, t, i);
        return;
    }
    for (size_t at = 0; at + BYTES <= n; at += BYTES)
        block_down(to, from, at, low, high, t->count[i]);
    if (n % BYTES) /* some bytes a second time */
        block_down(to, from, n - BYTES, low, high, t->count[i]);
}

/* Channel c of four pixels in each lane: a lane's byte 3 i + c becomes its dword i. The last lane's
 * pixels follow four bytes of earlier pixels, so that nothing after the pixels is read. */
static inline VEC channel_index(VEC pixels, char c)
{
    const __m128i at = _mm_setr_epi8(c, -1, -1, -1, (char)(c + 3), -1, -1, -1, (char)(c + 6), -1,
                                     -1, -1, (char)(c + 9), -1, -1, -1);
    const __m128i last = _mm_add_epi8(at, _mm_set1_epi32(4));
    return V(shuffle_epi8)(pixels, EVERY_LANE_BUT_LAST(at, last));
}

enum { PIXELS = 4 * ROWS };

static inline void spread_block(float *to, size_t plane, uint32_t frames, size_t frame,
                                const uint8_t *rgb, const struct byte_numbers *b)
{
    const VEC pixels = load_pixels(rgb);
    for (int c = 0; c < 3; c++, to += plane) {
        const FLOATS x = times(channel_index(pixels, (char)c), b->rescale);
        const FLOATS v = V(div_ps)(V(sub_ps)(x, V(set1_ps)(b->mean[c])), V(set1_ps)(b->std[c]));
        for (uint32_t f = 0; f < frames; f++)
            V(storeu_ps)(to + f * frame, v);
    }
}

void ISA(spread)(float *to, size_t plane, uint32_t frames, size_t frame, const uint8_t *rgb,
                 uint32_t n, const struct byte_numbers *b)
{
    uint32_t i = 0;
    if (n < PIXELS) {
        NARROWER(spread)(to, plane, frames, frame, rgb, n, b);
        return;
    }
    for (; i + PIXELS <= n; i += PIXELS)
        spread_block(to + i, plane, frames, frame, rgb + 3 * (size_t)i, b);
    if (i < n) /* the last block overlaps the one before */
        spread_block(to + n - PIXELS, plane, frames, frame, rgb + 3 * (size_t)(n - PIXELS), b);
}
#endif
