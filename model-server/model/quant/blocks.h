/* blocks.h - one block of a GGUF tensor as numbers. */
#ifndef MODEL_SERVER_MODEL_QUANT_BLOCKS_H
#define MODEL_SERVER_MODEL_QUANT_BLOCKS_H
#include "common/gguf/gguf.h"
#include <stdbool.h>

enum { BLOCK_MAX = 256 };

/* As struct mat_codes has it, but for the width of scale and offset; what a packing has none of is
 * not set. */
struct block_codes {
    uint8_t code[BLOCK_MAX];
    float scale, offset;
    int8_t by[BLOCK_MAX / 16], less[BLOCK_MAX / 16];
};

bool block_readable(enum gguf_packing p);
/* The numbers of one block of `p` into `out`, as many as gguf_packings[p] says. Bit for bit what
 * ggml's dequantize_row_* makes of it. `p` is one that is readable. */
void block_numbers(enum gguf_packing p, const uint8_t *block, float out[BLOCK_MAX]);
#endif
