/* blocks_grid.c - the blocks of ggml with indices of grid points (grids.h): 256 numbers each.
 * Signs are bits beside the index. In IQ2 and IQ3 they are the signs of the numbers; in IQ1 they
 * shift a whole run up or down by an eighth. The layouts are those of ggml-common.h. */
#include "model-server/model/checkpoint/quant/blocks.h"
#include "model-server/model/checkpoint/quant/grids.h"
#include <string.h>

static uint32_t u16_at(const uint8_t *p) { return (uint32_t)(p[0] | p[1] << 8); }
static uint32_t u32_at(const uint8_t *p) { return u16_at(p) | u16_at(p + 2) << 16; }

/* Eight codes of 2 bits, and above each its sign. */
static void eight(uint8_t *code, uint32_t point, uint32_t signs)
{
    for (int i = 0; i < 8; i++)
        code[i] = (uint8_t)((point >> 2 * i & 3) | (signs >> i & 1) << 2);
}

/* Four codes of 3 bits, and above each its sign. */
static void four(uint8_t *code, uint32_t point, uint32_t signs)
{
    for (int i = 0; i < 4; i++)
        code[i] = (uint8_t)((point >> 3 * i & 7) | (signs >> i & 1) << 3);
}

/* The signs of eight numbers, of which an even count is negative: the last is not stored. */
static uint32_t even_signs(uint32_t seven)
{
    seven &= 127;
    return seven | (uint32_t)__builtin_parity(seven) << 7;
}

/* A 4-bit scale s in half steps: 2 s + 1. */
static int8_t odd_scale(uint32_t nibble) { return (int8_t)(2 * (nibble & 15) + 1); }

/* d; of 32 numbers: four indices, then 7 bits of signs for each and a scale */
void block_iq2_xxs(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b);
    for (uint32_t g = 0; g < 8; g++) {
        const uint8_t *q = b + 2 + (size_t)g * 8;
        const uint32_t rest = u32_at(q + 4);
        o->by[g] = odd_scale(rest >> 28);
        for (uint32_t i = 0; i < 4; i++)
            eight(o->code + (size_t)g * 32 + (size_t)i * 8, grid_iq2_xxs[q[i]],
                  even_signs(rest >> 7 * i));
    }
}

/* d; of 8 numbers: 9 bits of index, 7 of signs; scales of 16 numbers */
void block_iq2_xs(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b);
    for (uint32_t g = 0; g < 16; g++)
        o->by[g] = odd_scale(b[66 + g / 2] >> g % 2 * 4);
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t q = u16_at(b + 2 + (size_t)i * 2);
        eight(o->code + (size_t)i * 8, grid_iq2_xs[q & 511], even_signs(q >> 9));
    }
}

/* d; indices of 8 numbers; their signs; the upper two bits of indices; scales of 16 numbers */
void block_iq2_s(const uint8_t *b, struct block_codes *o)
{
    const uint8_t *q = b + 2, *signs = q + 32, *upper = signs + 32, *scales = upper + 8;
    o->scale[0] = block_half(b);
    for (uint32_t g = 0; g < 16; g++)
        o->by[g] = odd_scale(scales[g / 2] >> g % 2 * 4);
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t high = upper[i / 4] >> i % 4 * 2 & 3u;
        eight(o->code + (size_t)i * 8, grid_iq2_s[q[i] | high << 8], signs[i]);
    }
}

/* d; indices of 4 numbers; of 32 numbers: 7 bits of signs for each 8, and a scale */
void block_iq3_xxs(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b);
    for (uint32_t g = 0; g < 8; g++) {
        const uint8_t *q = b + 2 + (size_t)g * 8;
        const uint32_t rest = u32_at(b + 66 + (size_t)g * 4);
        o->by[g] = odd_scale(rest >> 28);
        for (uint32_t i = 0; i < 8; i++)
            four(o->code + (size_t)g * 32 + (size_t)i * 4, grid_iq3_xxs[q[i]],
                 even_signs(rest >> i / 2 * 7) >> i % 2 * 4);
    }
}

/* d; indices of 4 numbers; their ninth bits; signs; scales of 32 numbers */
void block_iq3_s(const uint8_t *b, struct block_codes *o)
{
    const uint8_t *q = b + 2, *ninth = q + 64, *signs = ninth + 8, *scales = signs + 32;
    o->scale[0] = block_half(b);
    for (uint32_t g = 0; g < 8; g++)
        o->by[g] = odd_scale(scales[g / 2] >> g % 2 * 4);
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t high = ninth[i / 8] >> i % 8 & 1u;
        four(o->code + (size_t)i * 4, grid_iq3_s[q[i] | high << 8], signs[i / 2] >> i % 2 * 4);
    }
}

/* d; indices of 8 numbers; of 32 numbers: the upper three bits of four indices, a scale, and
 * whether they are moved down */
void block_iq1_s(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b);
    for (uint32_t g = 0; g < 8; g++) {
        const uint8_t *q = b + 2 + (size_t)g * 4;
        const uint32_t rest = u16_at(b + 34 + (size_t)g * 2), down = rest >> 15 ? 255 : 0;
        o->by[g] = (int8_t)(2 * (rest >> 12 & 7) + 1);
        for (uint32_t i = 0; i < 4; i++)
            eight(o->code + (size_t)g * 32 + (size_t)i * 8,
                  grid_iq1[q[i] | (rest >> 3 * i & 7) << 8], down);
    }
}

/* Indices of 8 numbers; nibbles: the upper three bits, and whether they are moved down; four words:
 * a nibble of d at the top, then scales of 3 bits of 16 numbers */
void block_iq1_m(const uint8_t *b, struct block_codes *o)
{
    const uint8_t *nibbles = b + 32, *words = b + 48;
    uint8_t d[2] = {0};
    for (uint32_t i = 0; i < 4; i++)
        d[i / 2] |= (uint8_t)((words[2 * i + 1] >> 4) << i % 2 * 4);
    o->scale[0] = block_half(d);
    for (uint32_t g = 0; g < 16; g++)
        o->by[g] = (int8_t)(2 * (u16_at(words + (size_t)(g / 4) * 2) >> g % 4 * 3 & 7) + 1);
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t n = nibbles[i / 2] >> i % 2 * 4;
        eight(o->code + (size_t)i * 8, grid_iq1[b[i] | (n & 7) << 8], n & 8 ? 255 : 0);
    }
}
