/* square_code_avx512amx.c - products of codes in the tile registers of AMX, and their
 * scales in vectors of 512 bits: code_squares.h. Compiled alone; AMX is inline assembly, as in
 * squares_amx.c.
 *
 * A square's sums leave the tile registers through memory, which takes as long as the product. So
 * both run side by side: vectors scale the sums of square n - LAG while the unit multiplies square
 * n. In between the sums lie in a ring that stays in the L1 cache. Where tile registers are in use,
 * one of the two vector units of fp32 pauses, so that the scales are what limits. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"
// vectors first
#include "model-server/backend/cpu/kernels/code_words.inc.h"
#include "model-server/backend/cpu/kernels/tiles.inc.h"
#include "model-server/backend/numbers.h"
#include <math.h>

/* Two registers of sums, used in turns: the sums of step n are stored in step n + 2, and scaled in
 * step n + LAG. */
enum { LAG = 4, RING = 4 };

/* The next step: of x and w, with how many are left of a square, and of squares beside it. */
struct place {
    const char *x, *w;
    uint32_t steps, wide;
};

INLINE void place_next(struct place *p, const struct code_squares *t, const size_t record)
{
    p->x += record, p->w += record;
    if (--p->steps)
        return;
    p->steps = t->steps;
    if (--p->wide) {
        p->x -= t->steps * record;
    } else {
        p->wide = t->wide;
        p->w = t->w;
    }
}

INLINE char *ring_at(char *ring, uint32_t step)
{
    return ring + (size_t)(step % RING) * SQUARE_BYTES;
}

/* The product of a step with sums in an even or odd register, whose last ones are stored. */
INLINE void multiply_step(const struct place *p, char *ring, uint32_t n, const size_t row,
                          const bool odd)
{
    char *to = ring_at(ring, n - 2);
    if (odd) {
        LOAD(6, p->x, row);
        LOAD(7, p->w, 64);
        STORE(1, to, 64);
        ZERO(1);
        __asm__ volatile("tdpbf16ps %%tmm7, %%tmm6, %%tmm1" ::);
    } else {
        LOAD(4, p->x, row);
        LOAD(5, p->w, 64);
        STORE(0, to, 64);
        ZERO(0);
        __asm__ volatile("tdpbf16ps %%tmm5, %%tmm4, %%tmm0" ::);
    }
}

/* Adds the sums of a step to the outputs. */
INLINE void scale_step(v16 *acc, const char *sums, const char *x, const char *w,
                       const size_t scales, const bool offsets)
{
    const float *sx = (const float *)(const void *)(x + scales), *tx = sx + LANES;
    const float *sw = (const float *)(const void *)(w + scales);
    const v16 scale = v_load(sw), offset = offsets ? v_load(sw + LANES) : scale;
    UNROLL for (uint32_t r = 0; r < SQUARE; r++)
    {
        const v16 sum = v_load((const float *)(const void *)(sums + (size_t)r * SQUARE_STEP_BYTES));
        acc[r] = v_fma(sum, v_mul(scale, v_set(sx[r])), acc[r]);
        if (offsets)
            acc[r] = v_fma(offset, v_set(tx[r]), acc[r]);
    }
}

/* All steps of a square, as the unit is LAG steps ahead. */
struct square_walk {
    struct place ahead;
    uint32_t n, all; /* steps that were multiplied, or stored only */
    char *ring;
};

INLINE void walk(struct square_walk *s, const struct code_squares *t, const size_t record,
                 const size_t row, const bool odd)
{
    if (s->n < s->all) {
        multiply_step(&s->ahead, s->ring, s->n, row, odd);
        place_next(&s->ahead, t, record);
    } else if (odd) {
        STORE(1, ring_at(s->ring, s->n - 2), 64);
    } else {
        STORE(0, ring_at(s->ring, s->n - 2), 64);
    }
    s->n++;
}

INLINE void one_square(struct square_walk *s, const struct code_squares *t, float *y, const char *x,
                       const char *w, const size_t record, const uint32_t columns,
                       const bool offsets)
{
    const size_t scales = (size_t)columns * SQUARE * 2, row = (size_t)columns * 2;
    v16 acc[SQUARE];
    UNROLL for (uint32_t r = 0; r < SQUARE; r++) acc[r] =
        t->add ? v_load(y + (size_t)r * LANES) : v_set(0.0f);
    for (uint32_t i = 0; i < t->steps; i += 2, x += 2 * record, w += 2 * record) {
        walk(s, t, record, row, false);
        scale_step(acc, ring_at(s->ring, s->n - 1 - LAG), x, w, scales, offsets);
        walk(s, t, record, row, true);
        scale_step(acc, ring_at(s->ring, s->n - 1 - LAG), x + record, w + record, scales, offsets);
    }
    UNROLL for (uint32_t r = 0; r < SQUARE; r++) v_store(y + (size_t)r * LANES, acc[r]);
}

INLINE void all_squares(const struct code_squares *t, const uint32_t columns, const bool offsets)
{
    const size_t record = ((size_t)columns * SQUARE * 2) + (size_t)(offsets ? 2 : 1) * CODE_WORDS;
    _Alignas(64) char ring[RING * SQUARE_BYTES];
    struct tile_config shapes = all_square;
    shapes.row_bytes[4] = shapes.row_bytes[6] = (uint16_t)(columns * 2);
    shapes.rows[5] = shapes.rows[7] = (uint8_t)(columns / 2);
    TILES_BEGIN(shapes);
    struct square_walk s = {.ahead = {t->x, t->w, t->steps, t->wide},
                            .all = t->tall * t->wide * t->steps,
                            .ring = ring};
    for (uint32_t i = 0; i < LAG; i++)
        walk(&s, t, record, (size_t)columns * 2, i % 2);
    float *y = t->sums;
    const char *x = t->x, *fetch = t->fetch;
    for (uint32_t tall = 0; tall < t->tall;
         tall++, x += t->steps * record, fetch += t->fetch_step) {
        const char *w = t->w;
        for (uint32_t wide = 0; wide < t->wide; wide++, y += (size_t)SQUARE * LANES) {
            for (size_t i = 0; i < t->fetch_step; i += STEP_BYTES)
                __builtin_prefetch(fetch + wide * t->fetch_panel + i, 0, 2);
            one_square(&s, t, y, x, w, record, columns, offsets);
            w += t->steps * record;
        }
    }
    TILES_END();
}

#define LAYOUT(name, columns, offsets)                                                             \
    static __attribute__((noinline)) void name(const struct code_squares *t)                       \
    {                                                                                              \
        all_squares(t, columns, offsets);                                                          \
    }
LAYOUT(squares_32, 32, false)
LAYOUT(squares_16, 16, false)
LAYOUT(squares_32_less, 32, true)
LAYOUT(squares_16_less, 16, true)

void k_squares_codes_avx512amx(const struct code_squares *t)
{
    static void (*const by[2][2])(const struct code_squares *) = {{squares_32, squares_32_less},
                                                                  {squares_16, squares_16_less}};
    by[term_columns(t->layout) == 16][code_has_offsets(t->layout)](t);
}

/* ---------------------------------------------------------------- operands */

/* n minus n of 0 as bfloat16, of every n of up to six bits; of a table's codes, in full. */
struct numbers {
    i16 of[2];
};

INLINE struct numbers numbers_of(const struct code_layout *l)
{
    const int zero = code_has_offsets(l) ? 0 : (int)l->zero;
    _Alignas(64) uint16_t some[4 * LANES];
    for (int n = 0; n < 4 * LANES; n++)
        some[n] = (uint16_t)(bits_of((float)((l->table ? l->table[n % LANES] : n) - zero)) >> 16);
    return (struct numbers){{i_load(some), i_load(some + (size_t)2 * LANES)}};
}

/* Two n in each lane's halves as bfloat16: looked up, or of eight bits computed. */
INLINE i16 pair_of(i16 pair, const struct numbers *all, i16 zero, const int up)
{
    if (up == UP_NONE || up == UP_TABLE || up == UP_1)
        return _mm512_permutexvar_epi16(pair, all->of[0]);
    if (up == UP_2)
        return _mm512_permutex2var_epi16(all->of[0], pair, all->of[1]);
    const i16 low = v_bits(v_from_int(i_sub(i_and(pair, i_set(0xffff)), zero)));
    const i16 high = v_bits(v_from_int(i_sub(i_shr(pair, 16), zero)));
    return i_and_or(high, i_set(0xffff0000), i_shr(low, 16));
}

/* The e-th eight columns of 32: four pairs of 16 outputs. */
INLINE void square_eight(char *dst, const char *words, const uint32_t e, const struct numbers *all,
                         i16 zero, const int up)
{
    if (up == UP_NONE || up == UP_TABLE) { /* bits 4 c of the word */
        const i16 word = i_load(words + (size_t)e * CODE_WORDS), four = i_set(0x000f000f);
        i_store(dst, pair_of(i_and(word, four), all, zero, up));
        i_store(dst + CODE_WORDS, pair_of(i_and(i_shr(word, 4), four), all, zero, up));
        i_store(dst + (size_t)2 * CODE_WORDS, pair_of(i_and(i_shr(word, 8), four), all, zero, up));
        i_store(dst + (size_t)3 * CODE_WORDS, pair_of(i_and(i_shr(word, 12), four), all, zero, up));
        return;
    }
    const i16 eight = i_set(0x00ff00ff);
    i16 even, odd; /* 0 2 4 6, and 1 3 5 7 */
    code_eight(words, e, NULL, &even, &odd, up);
    i_store(dst, pair_of(i_and(even, eight), all, zero, up));
    i_store(dst + CODE_WORDS, pair_of(i_and(odd, eight), all, zero, up));
    i_store(dst + (size_t)2 * CODE_WORDS, pair_of(i_and(i_shr(even, 8), eight), all, zero, up));
    i_store(dst + (size_t)3 * CODE_WORDS, pair_of(i_and(i_shr(odd, 8), eight), all, zero, up));
}

INLINE void square_columns(char *dst, const char *block, const struct code_layout *l, uint32_t in,
                           const struct numbers *all, const int up)
{
    const uint32_t upper = up == UP_TABLE ? 0 : (uint32_t)up, columns = term_columns(l);
    const char *words =
        block + l->codes + (size_t)(in / CODE_COLS) * (upper + CODE_COLS / 8) * CODE_WORDS;
    const bool offsets = code_has_offsets(l);
    const i16 zero = i_set(offsets ? 0 : (uint32_t)l->zero);
    const size_t record = record_bytes(l);
    UNROLL for (uint32_t e = 0; e < 4; e++)
    {
        char *to = columns == LANES ? dst + e / 2 * record + (size_t)(e % 2) * 4 * CODE_WORDS
                                    : dst + (size_t)e * 4 * CODE_WORDS;
        square_eight(to, words, e, all, zero, up);
    }
    for (uint32_t at = in; at < in + CODE_COLS; at += columns, dst += record) {
        const struct code_terms of = terms_at(l, block, at, halves_at(l, block, at), offsets);
        v_store((float *)(void *)(dst + record_scales(l)), of.scale);
        if (offsets)
            v_store((float *)(void *)(dst + record_terms(l)), of.offset);
    }
}

INLINE void square_panel(char *dst, const char *panel, const struct code_layout *l, uint32_t k,
                         uint32_t n, const int up)
{
    const struct numbers all = numbers_of(l);
    const size_t group = record_bytes(l) * (CODE_COLS / term_columns(l));
    for (const uint32_t end = k + n; k < end; k += CODE_COLS, dst += group)
        square_columns(dst, panel + (size_t)(k / CODE_BLOCK) * l->bytes, l, k % CODE_BLOCK, &all,
                       up);
}

void k_square_w_avx512amx(char *dst, const char *panel, const struct code_layout *l, uint32_t k,
                          uint32_t n)
{
    switch (l->table ? UP_TABLE : (int)l->upper) {
    case UP_NONE:
        square_panel(dst, panel, l, k, n, UP_NONE);
        break;
    case UP_1:
        square_panel(dst, panel, l, k, n, UP_1);
        break;
    case UP_2:
        square_panel(dst, panel, l, k, n, UP_2);
        break;
    case UP_4:
        square_panel(dst, panel, l, k, n, UP_4);
        break;
    case UP_TABLE:
        square_panel(dst, panel, l, k, n, UP_TABLE);
        break;
    }
}

/* 16 integers as bfloat16, the pairs of each eight adjacent. */
INLINE void store_pairs(char *dst, i16 q)
{
    const i16 pairs = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    const i16 bits = v_bits(v_from_int(_mm512_permutexvar_epi32(pairs, q)));
    i_store_u16((uint16_t *)(void *)dst, i_shr(bits, 16));
}

INLINE i16 magnitudes(v16 v) { return i_and(v_bits(v), i_set(0x7fffffff)); }

INLINE void put_float(char *dst, float f) { memcpy(dst, &f, sizeof(f)); }

void k_square_x_avx512amx(char *dst, const float *src, const struct code_layout *l, uint32_t row)
{
    const v16 a = v_load(src), b = v_load(src + LANES);
    const float top = float_of((uint32_t)i_top(i_max(magnitudes(a), magnitudes(b))));
    float scale = 0, to_int = 0;
    if (!isfinite(top)) {
        k_square_x_ref(dst, src, l, row);
        return;
    }
    if (top >= 0x1p-120f)
        scale = top / 127.0f, to_int = 127.0f / top;
    const i16 q[2] = {v_to_int(v_mul(a, v_set(to_int))), v_to_int(v_mul(b, v_set(to_int)))};
    const bool sixteen = term_columns(l) == LANES, offsets = code_has_offsets(l);
    for (uint32_t h = 0; h < (sixteen ? 2 : 1); h++, dst += record_bytes(l)) {
        const i16 both = sixteen ? q[h] : i_add(q[0], q[1]);
        char *to = dst + (size_t)row * term_columns(l) * 2;
        store_pairs(to, q[h]);
        if (!sixteen)
            store_pairs(to + LANES * sizeof(uint16_t), q[1]);
        put_float(dst + record_scales(l) + (size_t)row * 4, scale);
        if (offsets)
            put_float(dst + record_terms(l) + (size_t)row * 4, -(scale * (float)i_sum(both)));
    }
}
