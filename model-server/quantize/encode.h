/* encode.h - encodes numbers as ggml blocks by weighted least squares.
 *
 * The layouts are those that model/checkpoint/quant/blocks.c reads. For about twenty candidate
 * ranges the codes are chosen and the scale (and offset) is solved for; the candidate with the
 * smallest sum of weight * error^2 is taken. Scales of K-blocks are then rounded to their own bits
 * and refined by one step up and down. Weights from an importance matrix are mean squares of a
 * column's inputs. They are multiplied by sqrt(s + x^2), s the block's mean square, as llama.cpp
 * does, so that large numbers keep their weight. */
#ifndef MODEL_SERVER_QUANTIZE_ENCODE_H
#define MODEL_SERVER_QUANTIZE_ENCODE_H
#include "common/gguf/gguf.h"
#include <stdbool.h>

/* Encodes x[n] to out; n is a multiple of the type's block length. weight[n], or NULL: all 1. */
void encode_row(enum gguf_packing p, const float *x, const float *weight, uint64_t n, uint8_t *out);
#endif
