/* blocks.h - the indexer of block-sparse attention: a query for each key-value head and one key for
 * each token, both normalised and rotated (MiniMax M3). They select blocks of positions for the
 * heads of that key-value head. With block_spec.heads the keys are those of whole blocks, and all
 * queries together select for all heads (Qwen4-Exp). */
#ifndef MODEL_SERVER_MODEL_MIXER_BLOCKS_H
#define MODEL_SERVER_MODEL_MIXER_BLOCKS_H
#include "model-server/model/loader/loader.h"

struct block_index {
    struct weight *q, *k; /* [queries on this rank * dim], [dim] of hidden */
    struct norm q_norm, k_norm;
    /* With block_spec.heads: in a cell, the block that is open, of keys and of rotations; what
     * leaves of a block's rotations the first: [block][rotated numbers] */
    uint64_t keys, turns;
    float *first;
};
/* NULL after an error, which the loader records. */
struct block_index *block_index_load(struct loader *l, uint32_t layer);
void block_index_free(struct decoder *d, struct block_index *x); /* NULL is fine */
/* sublayer_ops.stateless of layers with such an indexer. */
bool block_index_stateless(const struct decoder *d);
/* Floats per token of block_index_select(), which takes three areas. */
uint32_t block_index_width(const struct decoder *d, uint32_t layer);
/* Writes the keys of all tokens of the step to the cache, and the selection to d->scratch.top. */
void block_index_select(struct decoder *d, const struct block_index *x, struct sub_step *t);
#endif
