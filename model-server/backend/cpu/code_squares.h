/* code_squares.h - products of panels of codes with activations in 8 bits on matrix units of
 * bfloat16. They have the bits of tile_codes() (kernels.h): the codes and the rounded activations
 * are integers that bfloat16 represents, so that a unit's fp32 sums of a group of 32 or 16 columns
 * are exact. Scales are applied to them per group, by vectors.
 *
 * Both operands are records, one for each group of columns that has terms of its own:
 *
 *   bf16 [16][columns]     of x: 16 rows. Of w: [columns / 2][16][2], the pairs of 16 outputs
 *   fp32 [16]              scales of the rows, or of the outputs (scale * by)
 *   fp32 [16]              with offsets: terms of the rows (kernels.h); offsets of the outputs
 *
 * Of each eight columns the pairs are 0 and 4, 1 and 5, 2 and 6, 3 and 7. Without offsets w's
 * numbers are n minus n of 0. */
#ifndef MODEL_SERVER_BACKEND_CPU_CODE_SQUARES_H
#define MODEL_SERVER_BACKEND_CPU_CODE_SQUARES_H
#include "model-server/backend/cpu/code_panel.h"
#include <stdbool.h>
#include <stddef.h>

static inline bool code_has_offsets(const struct code_layout *l) { return l->offset || l->less; }
static inline uint32_t term_columns(const struct code_layout *l)
{
    return l->groups ? CODE_BLOCK / l->groups : CODE_COLS;
}

/* Offsets of the scales and of the terms within a record, and its size. */
static inline size_t record_scales(const struct code_layout *l)
{
    return (size_t)term_columns(l) * CODE_LANES * 2;
}
static inline size_t record_terms(const struct code_layout *l)
{
    return record_scales(l) + CODE_WORDS;
}
static inline size_t record_bytes(const struct code_layout *l)
{
    return record_terms(l) + (code_has_offsets(l) ? CODE_WORDS : 0);
}
/* The place of column c of 32 in a row of x: pairs are adjacent. */
static inline uint32_t record_place(uint32_t c) { return c / 8 * 8 + c % 4 * 2 + c % 8 / 4; }

struct code_squares {
    float *sums;   /* [tall][wide][16][16] outputs: rows, then outputs of a panel */
    const char *x; /* [tall][steps] records */
    const char *w; /* [wide][steps] records */
    const struct code_layout *layout;
    uint32_t tall, wide, steps; /* steps: an even number */
    bool add;                   /* continue the existing sums, instead of starting at zero */
    /* Prefetches `fetch_step` bytes with each square, of as many areas as there are panels, which
     * lie `fetch_panel` bytes apart. Does not change a result. */
    const char *fetch;
    size_t fetch_step, fetch_panel;
};
#endif
