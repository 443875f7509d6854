/* blocks.h - one block of a GGUF tensor as numbers. */
#ifndef MODEL_SERVER_MODEL_QUANT_BLOCKS_H
#define MODEL_SERVER_MODEL_QUANT_BLOCKS_H
#include "common/gguf/gguf.h"

enum { BLOCK_MAX = 256 };

/* As struct mat_codes has it; what a packing has none of is not set. */
struct block_codes {
    uint8_t code[BLOCK_MAX];
    uint16_t scale, offset;
    int8_t by[BLOCK_MAX / 16], less[BLOCK_MAX / 16];
};

/* The numbers of one block of `p` into `out`, as many as gguf_packings[p] says. Bit for bit what
 * ggml's dequantize_row_* makes of it. `p` is one of Q4_0 to Q6_K. */
void block_numbers(enum gguf_packing p, const uint8_t *block, float out[BLOCK_MAX]);
#endif
