/* blocks.h - dequantises one block of a GGUF tensor. */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_QUANT_BLOCKS_H
#define MODEL_SERVER_MODEL_CHECKPOINT_QUANT_BLOCKS_H
#include "common/gguf/gguf.h"
#include <stdbool.h>

enum { BLOCK_MAX = 256, BLOCK_SCALES = 4 };

/* As in struct mat_codes, except for the width of scales and offset; terms that a packing lacks
 * are not set. A block of the file may be several of the format, each with a scale. */
struct block_codes {
    uint8_t code[BLOCK_MAX];
    float scale[BLOCK_SCALES], offset;
    int8_t by[BLOCK_MAX / 16], less[BLOCK_MAX / 16];
};

/* With indices of grid points: blocks_grid.c. */
typedef void block_unpack(const uint8_t *block, struct block_codes *o);
block_unpack block_iq1_s, block_iq1_m, block_iq2_xxs, block_iq2_xs, block_iq2_s, block_iq3_xxs,
    block_iq3_s;
float block_half(const uint8_t *p); /* a number in half precision */

bool block_readable(enum gguf_packing p);
/* Dequantises one block of `p` to `out`, gguf_packings[p] numbers. Bit for bit as ggml's
 * dequantize_row_*. `p` must be readable. */
void block_numbers(enum gguf_packing p, const uint8_t *block, float out[BLOCK_MAX]);
#endif
