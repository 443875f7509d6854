/* code_panel.h - panels of numbers that are kept as codes: struct mat_codes of backend.h, packed.
 *
 * Blocks of 256 columns; a last one that is not full is there in full. In a block:
 *   scale   f16 [1, 2, 4, 8 or 16][16], of all its columns, of 128, 64, 32 or 16
 *   offset  f16, the same, where any number has one
 *   by      int8 [8 or 16][16], of 32 or 16 columns, where scales are nested
 *   less    int8, the same, where there are both, or zero points
 * up to a multiple of 64 bytes; then for each 32 columns `upper` times [16] words and 4 times [16]
 * words. Bits 4 c .. 4 c + 3 of the latter are the lower four of column c of eight. In the former
 * the same bits are shared by 4 / `upper` eights, from the lowest on: the upper ones of their c.
 *
 * A number is fma(n, scale * by, -(offset * less)), where n is the code, or what the table has for
 * it. Without offsets n of 0 is `zero`, and the offset is that times the scale: the sum is exact
 * then. Zero points are a `less` without an offset, and `zero` is 1. */
#ifndef MODEL_SERVER_BACKEND_CPU_CODE_PANEL_H
#define MODEL_SERVER_BACKEND_CPU_CODE_PANEL_H
#include "model-server/backend/numbers.h"
#include <math.h>
#include <stdint.h>

enum { CODE_BLOCK = 256, CODE_COLS = 32, CODE_LANES = 16, CODE_WORDS = 64 /* bytes of [16] */ };

struct code_layout {
    uint32_t upper;  /* bits of a code above the lower four: 0, 1, 2 or 4 */
    uint32_t bits;   /* of the greatest n: 4 to 8 */
    uint32_t scales; /* of a block: 1, 2, 4, 8 or 16 */
    uint32_t groups; /* of a block that have terms of their own: 16; 8 or 0: of 32 columns */
    uint32_t offset, by, less; /* where they begin in a block; 0: there are none */
    uint32_t codes, bytes;     /* offset of the codes; size of a block */
    float zero;                /* without offsets: n of 0 */
    const uint8_t *table;      /* NULL: n is the code; else there are no offsets */
};

/* Where the words of column `in` of a block begin: those of the lower four bits, and those of the
 * upper ones. Where the latter begin in a nibble. */
struct code_place {
    uint32_t lower, upper, shift;
};

static inline struct code_place code_place(const struct code_layout *l, uint32_t in)
{
    const uint32_t eight = in % CODE_COLS / 8;
    const uint32_t at = l->codes + in / CODE_COLS * (l->upper + CODE_COLS / 8) * CODE_WORDS;
    return (struct code_place){at + (l->upper + eight) * CODE_WORDS,
                               at + eight * l->upper / 4 * CODE_WORDS, eight * l->upper % 4};
}

/* The index of column `in` among `n` groups of a block; n is 0, or a power of two up to 16. */
static inline uint32_t code_group(uint32_t in, uint32_t n) { return in * n / CODE_BLOCK; }

static inline float code_f16(const uint8_t *at, uint32_t i)
{
    uint16_t h;
    __builtin_memcpy(&h, at + (size_t)i * 2, sizeof(h));
    return f32_of_f16(h);
}

/* Element (lane, k) of a panel. */
static inline float code_at(const struct code_layout *l, const void *panel, uint32_t lane,
                            uint32_t k)
{
    const uint8_t *b = (const uint8_t *)panel + (size_t)(k / CODE_BLOCK) * l->bytes;
    const uint32_t in = k % CODE_BLOCK, c = in % 8, byte = lane * 4 + c / 2;
    const uint32_t i = code_group(in, l->scales) * CODE_LANES + lane;
    const uint32_t j = code_group(in, l->groups) * CODE_LANES + lane;
    const struct code_place p = code_place(l, in);
    uint32_t code = b[p.lower + byte] >> c % 2 * 4 & 15;
    if (l->upper)
        code |= (b[p.upper + byte] >> (c % 2 * 4 + p.shift) & ((1u << l->upper) - 1)) << 4;
    if (l->table)
        code = l->table[code];
    float scale = code_f16(b, i);
    scale *= l->by ? (float)(int8_t)b[l->by + j] : 1.0f;
    float offset = l->offset ? code_f16(b + l->offset, i) : scale * l->zero;
    offset *= l->less ? (float)(int8_t)b[l->less + j] : 1.0f;
    return fmaf((float)code, scale, 0.0f - offset);
}
#endif
