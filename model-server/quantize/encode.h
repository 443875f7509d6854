/* encode.h - numbers into blocks of ggml, by weighted least squares.
 *
 * Layouts are those that model/quant/blocks.c reads. The scale (and offset) of some numbers is, of
 * about twenty ranges, the one whose codes leave the least sum of weight * error^2 once the scale
 * is solved for; scales of K-blocks are then rounded to their own bits, and tried one step up and
 * down with the codes chosen anew. Weights of an importance matrix are the mean squares of the
 * inputs that a column is multiplied with; they are multiplied with sqrt(s + x^2), s the block's
 * mean square, as llama.cpp does, so that large numbers keep their own weight. */
#ifndef MODEL_SERVER_QUANTIZE_ENCODE_H
#define MODEL_SERVER_QUANTIZE_ENCODE_H
#include "common/gguf/gguf.h"
#include <stdbool.h>

bool encode_writable(enum gguf_packing p);
/* n numbers, a multiple of the packing's elements, as its blocks. weight [n] or NULL: all are 1. */
void encode_row(enum gguf_packing p, const float *x, const float *weight, uint64_t n, uint8_t *out);
#endif
