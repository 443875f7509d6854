/* code_words.inc.h - codes and scales of a packed panel (code_panel.h) in vectors. */
#include "model-server/backend/cpu/kernels/kernels.h"

static const uint8_t no_table[LANES];

/* Layout of the upper bits of a code: see code_panel.h. UP_TABLE: there are none, and n is looked
 * up. UP_SMALL: the same, and n has at most 5 bits. */
enum { UP_NONE, UP_1, UP_2, UP_4 = 4, UP_TABLE, UP_SMALL };

/* Scales of the numbers, and what is subtracted from them. */
struct code_terms {
    v16 scale, offset;
};

/* Scale and offset of 32 columns, or of the whole block. */
INLINE struct code_terms halves_at(const struct code_layout *l, const char *block, uint32_t in)
{
    const size_t i = (size_t)code_group(in, l->scales) * LANES * 2;
    const v16 scale = v_from_f16((const uint16_t *)(block + i));
    return (struct code_terms){
        scale, l->offset ? v_from_f16((const uint16_t *)(block + l->offset + i)) : scale};
}

/* The terms of a group: `of` times the nested scales. */
INLINE struct code_terms terms_at(const struct code_layout *l, const char *block, uint32_t in,
                                  struct code_terms of, const bool offsets)
{
    const int8_t *j = (const int8_t *)block + (size_t)code_group(in, l->groups) * LANES;
    if (l->by)
        of.scale = v_mul(of.scale, v_from_i8(j + l->by));
    if (offsets && !l->offset)
        of.offset = v_mul(of.scale, v_set(l->zero));
    if (offsets && l->less)
        of.offset = v_mul(of.offset, v_from_i8(j + l->less));
    return of;
}

/* The two quads of eight columns. `words`: the words of 32 columns. */
INLINE void code_eight(const char *words, const uint32_t e, const struct v_bytes *table, i16 *even,
                       i16 *odd, const int up)
{
    const uint32_t upper = up >= UP_TABLE ? 0 : (uint32_t)up;
    const i16 nibble = i_set(0x0f0f0f0f), low = i_load(words + (upper + e) * CODE_WORDS);
    *even = i_and(low, nibble);
    *odd = i_and(i_shr(low, 4), nibble);
    if (up >= UP_TABLE) {
        *even = i_look_up(table, *even);
        *odd = i_look_up(table, *odd);
    } else if (up == UP_4) {
        const i16 high = i_load(words + e * CODE_WORDS);
        *even = i_and_or(i_shl(high, 4), i_set(0xf0f0f0f0), *even);
        *odd = i_and_or(high, i_set(0xf0f0f0f0), *odd);
    } else if (upper) {
        const i16 mask = i_set(((1u << upper) - 1) * 0x10101010u);
        const i16 high = i_load(words + e * upper / 4 * CODE_WORDS);
        const int shift = (int)(e * upper % 4);
        *even = i_and_or(i_shl(high, 4 - shift), mask, *even);
        *odd = i_and_or(shift ? i_shr(high, shift) : high, mask, *odd);
    }
}
