/* code.inc.h - products of panels of codes with activations in 8 bits, once for all
 * instruction sets: see kernels.h. The including file defines
 *   dot_code(sum, n, x, bits)   sum + n x of a quad in each lane, where n has this many bits
 *   CODE_ROWS_TWO         most rows that use two sums; n has 8 bits then
 *   CODE_ROWS_FAR         most rows for which panels are prefetched into the second cache; 0: none
 *   DOT_BY_BITS           if n of fewer bits are multiplied faster
 * or, without an instruction for quads, HAS_DOT_PAIRS and
 *   struct pairs_n, pairs_n(n, bits) n as it is multiplied: of 8 bits two nibbles
 *   struct pairs, pairs_none, pairs_add, pairs_sum   sums of n x in 16 bits
 *   PAIRS_QUADS(bits)     quads with n of this many bits that fit into such a sum
 *   dot_quads, SHIFT(bits)           unpacked quads of n less the shift with some rows
 * and how many rows fit the registers, packed and unpacked: CODE_ROWS_MAX, WIDE_ROWS_MAX. Of packed
 * columns more than CODE_ROWS_FEW rows take unpacked quads from registers, one row after the other,
 * in one function for any number of rows; fewer have their sums in them, and a function each. Up to
 * CODE_ROWS_PANELS(up) rows multiply several panels at a time. */
#include "model-server/backend/cpu/kernels/code_words.inc.h"
#include "model-server/backend/cpu/kernels/rows.inc.h"
#include "model-server/backend/numbers.h"
#include <math.h>
#include <string.h>

#ifndef IN_TURN
#define IN_TURN _Pragma("GCC unroll 1")
#endif
#define FETCH(at) __builtin_prefetch(at)
#ifndef CODE_ROWS_FAR
#define CODE_ROWS_FAR 0
#endif

/* Panels that few rows are multiplied with at a time, and prefetch distance in each. So many
 * streams reach 0.93 to 1.0 of the speed of loads alone, one stream 0.86 to 0.97. */
enum { CODE_PANELS = 4, CODE_AHEAD = 2048 };

/* Adds the contribution of 32 columns, or of their halves, to the outputs of each row. */
INLINE void code_add(v16 *acc, const i16 *sum, const int32_t *x, const uint32_t half,
                     struct code_terms of, const bool offsets, const uint32_t rows)
{
    UNROLL for (uint32_t r = 0; r < rows; r++, x += CODE_X_WORDS)
    {
        const v16 s = v_mul(of.scale, i_float(i_set((uint32_t)x[CODE_X_SCALE])));
        acc[r] = v_fma(v_from_int(sum[r]), s, acc[r]);
        if (offsets)
            acc[r] = v_fma(of.offset, i_float(i_set((uint32_t)x[CODE_X_TERM + half])), acc[r]);
    }
}

/* The first cache has too few outstanding misses for a fast memory. With more rows the products
 * are the limit, and what is in the first cache waits less. */
INLINE void code_fetch(const char *at, const uint32_t rows)
{
    if (rows <= CODE_ROWS_FAR)
        __builtin_prefetch(at, 0, 2);
    else
        FETCH(at);
}

/* Number of bits of packed n in a layout. Tables may have any. */
INLINE int code_bits(const int up) { return up == UP_SMALL ? 5 : up >= UP_4 ? 8 : 4 + up; }

#ifdef HAS_DOT_PAIRS
/* The e-th eight columns, of `first` to `end`. */
INLINE void code_pairs8(i16 *sum, struct pairs *part, const char *words, const uint32_t e,
                        const uint32_t end, const struct v_bytes *table, const int32_t *x,
                        const int up, const uint32_t rows)
{
    const int bits = code_bits(up);
    struct pairs_n even, odd;
    if (up == UP_4) {
        const i16 nibble = i_set(0x0f0f0f0f), high = i_load(words + e * CODE_WORDS);
        code_eight(words + UP_4 * CODE_WORDS, e, table, &even.low, &odd.low, UP_NONE);
        even.high = i_and(high, nibble);
        odd.high = i_and(i_shr(high, 4), nibble);
    } else {
        i16 n[2];
        code_eight(words, e, table, &n[0], &n[1], up);
        even = pairs_n(n[0], bits);
        odd = pairs_n(n[1], bits);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        const int32_t *q = x + r * CODE_X_WORDS + 2 * e;
        part[r] = pairs_add(pairs_add(part[r], even, q, bits), odd, q + 1, bits);
        if ((e + 1) * 2 % PAIRS_QUADS(bits) == 0 || e + 1 == end) {
            sum[r] = i_add(sum[r], pairs_sum(part[r], bits));
            part[r] = pairs_none();
        }
    }
}

/* Eight columns `eights` times, from the e-th on. With more rows in turn, so that their sums stay
 * in registers. */
INLINE void code_sums(i16 *sum, const char *words, const uint32_t first, const uint32_t eights,
                      const struct v_bytes *table, const int32_t *x, const int up,
                      const uint32_t rows)
{
    struct pairs part[CODE_ROWS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) part[r] = pairs_none();
    if (rows > CODE_ROWS_FEW) {
        IN_TURN for (uint32_t e = first; e < first + eights; e++)
            code_pairs8(sum, part, words, e, first + eights, table, x, up, rows);
        return;
    }
    UNROLL for (uint32_t e = first; e < first + eights; e++)
        code_pairs8(sum, part, words, e, first + eights, table, x, up, rows);
}
#else
/* With few rows there are two sums, of even and of odd columns, which reduces stalls. 4-bit codes
 * need no shift then: the odd ones count sixteen times. */
INLINE void code_dot8(i16 *even_sum, i16 *odd_sum, const char *words, const uint32_t e,
                      const struct v_bytes *table, const int32_t *x, const int up,
                      const uint32_t rows)
{
    const bool two = rows <= CODE_ROWS_TWO;
    i16 even, odd;
    if (two && up == UP_NONE) {
        const i16 both = i_load(words + e * CODE_WORDS);
        even = i_and(both, i_set(0x0f0f0f0f));
        odd = i_and(both, i_set(0xf0f0f0f0));
    } else {
        code_eight(words, e, table, &even, &odd, up);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        const int32_t *q = x + r * CODE_X_WORDS + 2 * e;
        i16 *second = two ? &odd_sum[r] : &even_sum[r];
        even_sum[r] = dot_code(even_sum[r], even, q, code_bits(up));
        *second = dot_code(*second, odd, q + 1, two ? 8 : code_bits(up));
    }
}

INLINE void code_sums(i16 *sum, const char *words, const uint32_t first, const uint32_t eights,
                      const struct v_bytes *table, const int32_t *x, const int up,
                      const uint32_t rows)
{
    i16 odd[CODE_ROWS_FEW];
    UNROLL for (uint32_t r = 0; r < rows; r++) odd[r] = i_set(0);
    UNROLL for (uint32_t e = first; e < first + eights; e++)
        code_dot8(sum, odd, words, e, table, x, up, rows);
    UNROLL for (uint32_t r = 0; r < rows; r++) if (rows <= CODE_ROWS_TWO) sum[r] =
        i_add(sum[r], up == UP_NONE ? i_sar(odd[r], 4) : odd[r]);
}
#endif

#ifndef HAS_DOT_PAIRS
/* 32 columns, or half h of them, of quads in registers, with a row. */
INLINE void half_row(v16 *acc, const i16 *w, const int32_t *x, const uint32_t h,
                     struct code_terms of, const bool sixteen, const bool offsets, const int bits)
{
    const uint32_t quads = sixteen ? 4 : 8;
    i16 sum = i_set(offsets ? 0 : (uint32_t)x[CODE_X_TERM + h]);
    UNROLL for (uint32_t i = h * quads; i < (h + 1) * quads; i++) sum =
        dot_code(sum, w[i], x + i, bits);
    code_add(acc, &sum, x, h, of, offsets, 1);
}
#endif

INLINE const char *code_words(const struct code_layout *l, const char *block, uint32_t in,
                              const int up)
{
    const uint32_t upper = up >= UP_TABLE ? 0 : (uint32_t)up;
    return block + l->codes + in / CODE_COLS * (upper + CODE_COLS / 8) * CODE_WORDS;
}

INLINE void code_fetch_words(const char *at, const int up, const uint32_t rows)
{
    const uint32_t words = (up >= UP_TABLE ? 0 : (uint32_t)up) + 4;
    UNROLL for (uint32_t i = 0; i < words; i++) code_fetch(at + i * CODE_WORDS, rows);
}

INLINE void code_fetch_scales(const struct code_layout *l, const char *at, const uint32_t rows)
{
    for (uint32_t i = 0; i < l->codes; i += CODE_WORDS)
        code_fetch(at + i, rows);
}

/* The terms of 32 columns from `in` on, or of half h of them. */
INLINE struct code_terms half_terms(const struct code_layout *l, const char *block, uint32_t in,
                                    const uint32_t h, const bool sixteen, const bool offsets)
{
    in += sixteen ? h * CODE_LANES : 0;
    return terms_at(l, block, in, halves_at(l, block, in), offsets);
}

/* 32 columns of a packed panel. */
INLINE void code_columns8(v16 *acc, const struct code_layout *l, const char *block, uint32_t in,
                          const struct v_bytes *table, const int32_t *x, size_t ahead, const int up,
                          const bool sixteen, const bool offsets, const uint32_t rows)
{
    const uint32_t halves = sixteen ? 2 : 1;
    const char *words = code_words(l, block, in, up);
    code_fetch_words(words + ahead, up, rows);
    UNROLL for (uint32_t h = 0; h < halves; h++)
    {
        i16 sum[CODE_ROWS_MAX];
        const struct code_terms of = half_terms(l, block, in, h, sixteen, offsets);
        UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] =
            i_set(offsets ? 0 : (uint32_t)x[r * CODE_X_WORDS + CODE_X_TERM + h]);
        code_sums(sum, words, 4 / halves * h, 4 / halves, table, x, up, rows);
        code_add(acc, sum, x, h, of, offsets, rows);
    }
}

/* Where the panel's next block is prefetched; of the last block the next panel's first one. */
INLINE size_t code_ahead(const struct code_tile *t, uint32_t k, uint32_t panels)
{
    return k + CODE_BLOCK < t->k
               ? CODE_AHEAD
               : panels * t->w_bytes - (size_t)(k / CODE_BLOCK) * t->layout->bytes;
}

/* A panel with some rows. */
INLINE void code_panel8(const struct code_tile *t, const char *w, float *y, uint32_t n,
                        const int32_t *x, const struct v_bytes *table, const int up,
                        const bool sixteen, const bool offsets, const uint32_t rows)
{
    v16 acc[CODE_ROWS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) acc[r] = v_set(0.0f);
    for (uint32_t k = 0; k < t->k; k += CODE_BLOCK, w += t->layout->bytes) {
        const uint32_t cols = t->k - k < CODE_BLOCK ? t->k - k : CODE_BLOCK;
        const size_t ahead = code_ahead(t, k, 1);
        code_fetch_scales(t->layout, w + ahead, rows);
        for (uint32_t in = 0; in < cols; in += CODE_COLS, x += (size_t)t->rows * CODE_X_WORDS)
            code_columns8(acc, t->layout, w, in, table, x, ahead, up, sixteen, offsets, rows);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) v_store_n(y + r * t->ldy, acc[r], n);
}

/* Several panels, the last of which has `last` outputs. They take turns, 32 columns each, with
 * their sums in memory. One copy of the loop for each panel was a sixth slower with one row. */
INLINE void code_turns8(const struct code_tile *t, const char *w, float *y, uint32_t last,
                        const int32_t *x, const struct v_bytes *table, const int up,
                        const bool sixteen, const bool offsets, const uint32_t rows,
                        uint32_t panels)
{
    v16 acc[CODE_PANELS][CODE_ROWS_MAX];
    IN_TURN for (uint32_t p = 0; p < panels; p++)
    {
        UNROLL for (uint32_t r = 0; r < rows; r++) acc[p][r] = v_set(0.0f);
    }
    for (uint32_t k = 0; k < t->k; k += CODE_BLOCK, w += t->layout->bytes) {
        const uint32_t cols = t->k - k < CODE_BLOCK ? t->k - k : CODE_BLOCK;
        const size_t ahead = code_ahead(t, k, panels);
        IN_TURN for (uint32_t p = 0; p < panels; p++)
            code_fetch_scales(t->layout, w + p * t->w_bytes + ahead, rows);
        IN_TURN for (uint32_t in = 0; in < cols; in += CODE_COLS)
        {
            const char *block = w;
            IN_TURN for (uint32_t p = 0; p < panels; p++, block += t->w_bytes)
            {
                v16 sums[CODE_ROWS_MAX];
                UNROLL for (uint32_t r = 0; r < rows; r++) sums[r] = acc[p][r];
                code_columns8(sums, t->layout, block, in, table, x, ahead, up, sixteen, offsets,
                              rows);
                UNROLL for (uint32_t r = 0; r < rows; r++) acc[p][r] = sums[r];
            }
            x += (size_t)t->rows * CODE_X_WORDS;
        }
    }
    IN_TURN for (uint32_t p = 0; p < panels; p++)
    {
        UNROLL for (uint32_t r = 0; r < rows; r++)
            v_store_n(y + r * t->ldy + p * LANES, acc[p][r], p < panels - 1 ? LANES : last);
    }
}

INLINE void code_panels8(const struct code_tile *t, const uint32_t first, const uint32_t rows,
                         const int up, const bool sixteen, const bool offsets)
{
    const int32_t *x = t->x + (size_t)first * CODE_X_WORDS;
    float *y = t->y + first * t->ldy;
    const char *w = t->w;
    const struct v_bytes table = up >= UP_TABLE ? v_bytes(t->layout->table) : v_bytes(no_table);
    const uint32_t most = rows <= CODE_ROWS_PANELS(up) ? CODE_PANELS : 1;
    for (uint32_t i = 0; i < t->n; i += most * LANES, w += most * t->w_bytes) {
        const uint32_t left = (t->n - i + LANES - 1) / LANES, panels = left < most ? left : most;
        const uint32_t after = t->n - i - (panels - 1) * LANES,
                       last = after < LANES ? after : LANES;
        if (most > 1)
            code_turns8(t, w, y + i, last, x, &table, up, sixteen, offsets, rows, panels);
        else
            code_panel8(t, w, y + i, last, x, &table, up, sixteen, offsets, rows);
    }
}

#ifndef HAS_DOT_PAIRS
/* A panel with many rows: its quads in registers, the rows' sums in memory. */
INLINE void code_panel_many(const struct code_tile *t, const char *w, float *y, uint32_t n,
                            const struct v_bytes *table, const int up, const bool sixteen,
                            const bool offsets)
{
    const struct code_layout *l = t->layout;
    const int32_t *x = t->x;
    const uint32_t rows = t->rows, halves = sixteen ? 2 : 1;
    v16 acc[CODE_ROWS_MAX];
    IN_TURN for (uint32_t r = 0; r < rows; r++) acc[r] = v_set(0.0f);
    for (uint32_t k = 0; k < t->k; k += CODE_COLS) {
        const uint32_t in = k % CODE_BLOCK, block_k = k - in;
        const char *block = w + (size_t)(k / CODE_BLOCK) * l->bytes;
        const char *words = code_words(l, block, in, up);
        const size_t ahead = code_ahead(t, block_k, 1);
        if (in == 0)
            code_fetch_scales(l, block + ahead, CODE_ROWS_MAX);
        code_fetch_words(words + ahead, up, CODE_ROWS_MAX);
        i16 quads[8];
        UNROLL for (uint32_t e = 0; e < 4; e++)
            code_eight(words, e, table, &quads[2 * e], &quads[2 * e + 1], up);
        struct code_terms of[2];
        UNROLL for (uint32_t h = 0; h < halves; h++) of[h] =
            half_terms(l, block, in, h, sixteen, offsets);
        IN_TURN for (uint32_t r = 0; r < rows; r++, x += CODE_X_WORDS)
        {
            UNROLL for (uint32_t h = 0; h < halves; h++)
                half_row(acc + r, quads, x, h, of[h], sixteen, offsets, code_bits(up));
        }
    }
    IN_TURN for (uint32_t r = 0; r < rows; r++) v_store_n(y + r * t->ldy, acc[r], n);
}

INLINE void code_many(const struct code_tile *t, const int up, const bool sixteen,
                      const bool offsets)
{
    const struct v_bytes table = up >= UP_TABLE ? v_bytes(t->layout->table) : v_bytes(no_table);
    const char *w = t->w;
    for (uint32_t i = 0; i < t->n; i += LANES, w += t->w_bytes)
        code_panel_many(t, w, t->y + i, t->n - i < LANES ? t->n - i : LANES, &table, up, sixteen,
                        offsets);
}
#endif

/* One function per layout, and beside it one for more rows than have functions of their own. */
#ifdef HAS_DOT_PAIRS
enum { CODE_ROWS_OWN = CODE_ROWS_MAX };
#define CODE_MANY(name, up, sixteen, offsets)
#define CODE_CALL(name) name(t)
#else
enum { CODE_ROWS_OWN = CODE_ROWS_FEW };
#define CODE_MANY(name, up, sixteen, offsets)                                                      \
    static __attribute__((noinline)) void name##_many(const struct code_tile *t)                   \
    {                                                                                              \
        code_many(t, up, sixteen, offsets);                                                        \
    }
/* Where all that fit have functions of their own, those take more rows a part at a time. */
INLINE bool code_is_many(uint32_t rows)
{
    return (uint32_t)CODE_ROWS_MAX > CODE_ROWS_OWN && rows > CODE_ROWS_OWN;
}
#define CODE_CALL(name) code_is_many(t->rows) ? name##_many(t) : name(t)
#endif
#define CODE_ROWS(name, up, sixteen, offsets)                                                      \
    EACH_ROWS(name##_few, code_tile, CODE_ROWS_OWN, code_panels8, up, sixteen, offsets)            \
    CODE_MANY(name##_few, up, sixteen, offsets)                                                    \
    static void name(const struct code_tile *t) { CODE_CALL(name##_few); }
#define CODE_LAYOUTS(up)                                                                           \
    CODE_ROWS(code_##up##_32, up, false, false)                                                    \
    CODE_ROWS(code_##up##_16, up, true, false)
#define CODE_LAYOUTS_LESS(up)                                                                      \
    CODE_ROWS(code_##up##_32_less, up, false, true)                                                \
    CODE_ROWS(code_##up##_16_less, up, true, true)
CODE_LAYOUTS(UP_NONE)
CODE_LAYOUTS(UP_1)
CODE_LAYOUTS(UP_2)
CODE_LAYOUTS(UP_4)
CODE_LAYOUTS_LESS(UP_NONE)
CODE_LAYOUTS_LESS(UP_1)
CODE_LAYOUTS_LESS(UP_2)
CODE_LAYOUTS_LESS(UP_4)
CODE_LAYOUTS(UP_TABLE)
#ifdef HAS_DOT_PAIRS
CODE_LAYOUTS(UP_SMALL)
#endif

void ISA(tile_codes)(const struct code_tile *t)
{
#define FOUR(up)                                                                                   \
    {                                                                                              \
        {code_##up##_32, code_##up##_32_less}, { code_##up##_16, code_##up##_16_less }             \
    }
#define TABLE(up)                                                                                  \
    {                                                                                              \
        {code_##up##_32}, { code_##up##_16 }                                                       \
    }
    static void (*const by[7][2][2])(const struct code_tile *) = {
        [UP_NONE] = FOUR(UP_NONE),    [UP_1] = FOUR(UP_1),          [UP_2] = FOUR(UP_2),
        [UP_4] = FOUR(UP_4),          [UP_TABLE] = TABLE(UP_TABLE),
#ifdef HAS_DOT_PAIRS
        [UP_SMALL] = TABLE(UP_SMALL),
#endif
    };
#undef FOUR
#undef TABLE
    const struct code_layout *l = t->layout;
    const uint32_t table = l->bits <= 5 && by[UP_SMALL][0][0] ? UP_SMALL : UP_TABLE;
    by[l->table ? table : l->upper][l->groups == 16][code_has_offsets(l)](t);
}

/* ---------------------------------------------------------------- unpacked */

INLINE void unpack_columns(char *dst, const struct code_layout *l, const char *block, uint32_t in,
                           const struct v_bytes *table, const int up)
{
    const uint32_t upper = up >= UP_TABLE ? 0 : (uint32_t)up;
    const char *words = block + l->codes + in / CODE_COLS * (upper + CODE_COLS / 8) * CODE_WORDS;
    const uint32_t second = l->groups == 16 ? CODE_LANES : 0;
    UNROLL for (uint32_t e = 0; e < 4; e++)
    {
        i16 even, odd;
        code_eight(words, e, table, &even, &odd, up);
        i_store(dst + (size_t)(2 * e) * STEP_BYTES, even);
        i_store(dst + (size_t)(2 * e + 1) * STEP_BYTES, odd);
    }
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        const struct code_terms of =
            terms_at(l, block, in + h * second, halves_at(l, block, in + h * second), true);
        v_store((float *)(void *)(dst + CODE_WIDE_SCALE) + (size_t)h * LANES, of.scale);
        v_store((float *)(void *)(dst + CODE_WIDE_OFFSET) + (size_t)h * LANES, of.offset);
    }
}

INLINE void unpack_all(char *dst, const char *panel, const struct code_layout *l, uint32_t k,
                       uint32_t n, const int up)
{
    const struct v_bytes table = up >= UP_TABLE ? v_bytes(l->table) : v_bytes(no_table);
    for (const uint32_t end = k + n; k < end; k += CODE_COLS, dst += CODE_WIDE_BYTES)
        unpack_columns(dst, l, panel + (size_t)(k / CODE_BLOCK) * l->bytes, k % CODE_BLOCK, &table,
                       up);
}

void ISA(unpack)(char *dst, const char *panel, const struct code_layout *l, uint32_t k, uint32_t n)
{
    switch (l->table ? UP_TABLE : (int)l->upper) {
    case UP_NONE:
        unpack_all(dst, panel, l, k, n, UP_NONE);
        break;
    case UP_1:
        unpack_all(dst, panel, l, k, n, UP_1);
        break;
    case UP_2:
        unpack_all(dst, panel, l, k, n, UP_2);
        break;
    case UP_4:
        unpack_all(dst, panel, l, k, n, UP_4);
        break;
    case UP_TABLE:
        unpack_all(dst, panel, l, k, n, UP_TABLE);
        break;
    }
}

INLINE struct code_terms wide_terms(const char *wide, const uint32_t h)
{
    return (struct code_terms){
        v_load((const float *)(const void *)(wide + CODE_WIDE_SCALE) + (size_t)h * LANES),
        v_load((const float *)(const void *)(wide + CODE_WIDE_OFFSET) + (size_t)h * LANES)};
}

#ifdef HAS_DOT_PAIRS
/* What a sum of dot_quads() lacks. */
INLINE int32_t code_start(const int32_t *x, const uint32_t half, const bool offsets, const int bits)
{
    const int32_t shift = SHIFT(bits) * code_x_sum(x, half);
    return offsets ? shift : shift + x[CODE_X_TERM + half];
}

/* A group of 32 columns for all rows: first all sums, then their contributions. */
INLINE void wide_columns(v16 *acc, const char *wide, const int32_t *x, const bool sixteen,
                         const bool offsets, const int bits, const uint32_t rows)
{
    const uint32_t halves = sixteen ? 2 : 1, quads = 8 / halves;
    UNROLL for (uint32_t h = 0; h < halves; h++)
    {
        i16 sum[WIDE_ROWS_MAX];
        dot_quads(sum, wide + (size_t)h * quads * STEP_BYTES, x + h * quads, quads, bits, rows);
        UNROLL for (uint32_t r = 0; r < rows; r++) if (!offsets || SHIFT(bits)) sum[r] =
            i_add(sum[r], i_set((uint32_t)code_start(x + r * CODE_X_WORDS, h, offsets, bits)));
        code_add(acc, sum, x, h, wide_terms(wide, h), offsets, rows);
    }
}
#else
/* The same, one row's sum at a time. */
INLINE void wide_columns(v16 *acc, const char *wide, const int32_t *x, const bool sixteen,
                         const bool offsets, const int bits, const uint32_t rows)
{
    const uint32_t halves = sixteen ? 2 : 1;
    i16 w[8];
    UNROLL for (uint32_t i = 0; i < 8; i++) w[i] = i_load(wide + (size_t)i * STEP_BYTES);
    UNROLL for (uint32_t h = 0; h < halves; h++)
    {
        const struct code_terms of = wide_terms(wide, h);
        UNROLL for (uint32_t r = 0; r < rows; r++)
            half_row(acc + r, w, x + r * CODE_X_WORDS, h, of, sixteen, offsets, bits);
    }
}
#endif

INLINE void wide_rows(const struct code_tile *t, const uint32_t first, const uint32_t rows,
                      const bool sixteen, const bool offsets, const int bits)
{
    const char *wide = t->w, *fetch = t->fetch;
    const int32_t *x = t->x + (size_t)first * CODE_X_WORDS;
    float *y = t->y + first * t->ldy;
    v16 acc[WIDE_ROWS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) acc[r] =
        t->add ? v_load_n(y + r * t->ldy, t->n) : v_set(0.0f);
    for (uint32_t k = 0; k < t->k; k += CODE_COLS, wide += CODE_WIDE_BYTES) {
        for (size_t i = 0; i < t->fetch_step; i += STEP_BYTES, fetch += STEP_BYTES)
            FETCH(fetch);
        wide_columns(acc, wide, x, sixteen, offsets, bits, rows);
        x += (size_t)t->rows * CODE_X_WORDS;
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) v_store_n(y + r * t->ldy, acc[r], t->n);
}

#define WIDE_ROWS(name, sixteen, offsets, bits)                                                    \
    EACH_ROWS(name, code_tile, WIDE_ROWS_MAX, wide_rows, sixteen, offsets, bits)
#define WIDE_LAYOUTS(bits)                                                                         \
    WIDE_ROWS(wide_##bits##_32, false, false, bits)                                                \
    WIDE_ROWS(wide_##bits##_16, true, false, bits)                                                 \
    WIDE_ROWS(wide_##bits##_32_less, false, true, bits)                                            \
    WIDE_ROWS(wide_##bits##_16_less, true, true, bits)
WIDE_LAYOUTS(8)
#if defined(HAS_DOT_PAIRS) || defined(DOT_BY_BITS)
WIDE_LAYOUTS(4)
WIDE_LAYOUTS(5)
WIDE_LAYOUTS(6)
#endif
#ifdef HAS_DOT_PAIRS
WIDE_LAYOUTS(7)
#endif

void ISA(tile_wide)(const struct code_tile *t)
{
#define FOUR(bits)                                                                                 \
    {                                                                                              \
        {wide_##bits##_32, wide_##bits##_32_less}, { wide_##bits##_16, wide_##bits##_16_less }     \
    }
    static void (*const by[9][2][2])(const struct code_tile *) = {
#if defined(HAS_DOT_PAIRS) || defined(DOT_BY_BITS)
        [4] = FOUR(4),
        [5] = FOUR(5),
        [6] = FOUR(6),
#endif
#ifdef HAS_DOT_PAIRS
        [7] = FOUR(7),
#endif
        [8] = FOUR(8)
    };
#undef FOUR
    const struct code_layout *l = t->layout;
    by[by[l->bits][0][0] ? l->bits : 8][l->groups == 16][code_has_offsets(l)](t);
}

/* ---------------------------------------------------------------- activations */

INLINE i16 magnitudes(v16 v) { return i_and(v_bits(v), i_set(0x7fffffff)); }

void ISA(round_x)(int32_t *dst, const float *src, const struct code_layout *l)
{
    const v16 a = v_load(src), b = v_load(src + LANES);
    const float top = float_of((uint32_t)i_top(i_max(magnitudes(a), magnitudes(b))));
    float scale = 0, to_int = 0;
    if (!isfinite(top)) {
        k_round_x_ref(dst, src, l);
        return;
    }
    if (top >= 0x1p-120f)
        scale = top / 127.0f, to_int = 127.0f / top;
    const i16 qa = v_to_int(v_mul(a, v_set(to_int))), qb = v_to_int(v_mul(b, v_set(to_int)));
    int32_t sums[2] = {i_sum(qa), i_sum(qb)};
    i_store_s8(dst, qa), i_store_s8(dst + 4, qb);
    b_even_first(dst), b_even_first(dst + 4);
    if (l->groups != 16)
        sums[0] += sums[1], sums[1] = 0;
    memcpy(&dst[CODE_X_SCALE], &scale, sizeof(scale));
    for (int h = 0; h < 2; h++) {
        const float term = -(scale * (float)sums[h]);
        if (code_has_offsets(l) && (h == 0 || l->groups == 16))
            memcpy(&dst[CODE_X_TERM + h], &term, sizeof(term));
        else
            dst[CODE_X_TERM + h] = -(int32_t)l->zero * sums[h];
    }
    dst[CODE_X_SUMS] = code_x_sums(sums[0], sums[1]);
}
