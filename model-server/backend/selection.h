/* selection.h - sparse attention: parameters of select_keys() and pool_keys() of a backend. */
#ifndef MODEL_SERVER_BACKEND_SELECTION_H
#define MODEL_SERVER_BACKEND_SELECTION_H
#include <stdbool.h>
#include <stdint.h>

/* Sparse attention with an indexer (DeepSeek V3.2, arXiv 2512.02556): a token attends only to the
 * `top` positions with the best scores. The score of a position is the sum over heads of
 * weights[t][h] * max(q[t][h] . its index key, 0). Only the order of scores matters, so they have
 * no other factors. Rotation of rot_dim numbers, from number rot_at on, as in struct rope_kv.
 *
 * With `block` (MiniMax M3) positions are selected by blocks of this many, and each head selects
 * `top` blocks for itself: the token's own block and the local - 1 before it, and of the others
 * those with the best scores. The score of a block is the greatest q[t][h] . index key in it.
 *
 * With `pooled` (GLM-5.3) a block is one candidate for all heads, if it is complete: its score is
 * that of the key of its last position, by the weights of the heads, as pool_keys() made it. The
 * best top - 1 are selected, and then the token's own block if that is not complete. With
 * `complete` (DeepSeek V4) the best `top` are selected, none of which is the token's own. */
struct select_keys {
    uint32_t n_heads, dim, rot_at, rot_dim, top;
    uint32_t block, local; /* local: 1 .. top */
    bool interleaved, pooled, complete;
    bool turned;       /* the keys come rotated */
    const float *rope; /* or NULL */
    /* [T, n_heads], or NULL: all are 1; not with `block`, but with `pooled` */
    const float *weights;
};
/* True if each head selects for itself. */
static inline bool select_by_head(const struct select_keys *p) { return p->block && !p->pooled; }
/* True if a token with n positions selects; else it attends to all. */
static inline bool select_some_of(const struct select_keys *p, uint32_t n)
{
    return p->pooled  ? n / p->block >= p->top + p->complete
           : p->block ? (n + p->block - 1) / p->block > p->top
                      : n > p->top;
}
/* Positions of a token at position `at` that selects `top` blocks, with more than `top` before it
 * and of it. The last selected block is its own. */
static inline uint32_t select_block_positions(uint32_t top, uint32_t block, uint32_t at)
{
    return (top - 1) * block + at % block + 1;
}

/* Keys of pools of `size` positions of a sequence, for `pooled` selections: the sum over a pool's
 * tokens of their keys, weighted for each number by a softmax over them of gates + bias. One that
 * is NULL counts as 0; without both it is the mean. A pool that is not complete is in the cell.
 *
 * With two `series` (DeepSeek V4) each token has two keys, two gates and two biases side by side.
 * The first ones belong to the next pool, so a softmax is over the tokens of two pools; the first
 * pool of a sequence has only its own. */
struct pool_keys {
    uint32_t dim, size;
    uint32_t series; /* 1 or 2 */
    const float *x;  /* [T, series, dim] the tokens' keys; with one series it may be the result */
    const float *gates; /* [T, series, dim] or NULL */
    const float *bias;  /* [size][series][dim] or NULL */
};
/* Floats of a cell, for each series: the largest logit, the sum of weights, the weighted sum. */
static inline uint64_t pool_floats(const struct pool_keys *p)
{
    return 3 * (uint64_t)p->series * p->dim;
}
#endif
