/* linear.h - private to this folder: a product with plain numbers in fp32 or in pairs of 16 bits,
 * in the pieces that linear() and mlp() are made of. All are called by one thread. */
#ifndef MODEL_SERVER_BACKEND_CPU_LINEAR_H
#define MODEL_SERVER_BACKEND_CPU_LINEAR_H
#include "model-server/backend/cpu/cpu.h"

/* Blocks of rows read the weights again. So they are of matrices that stay in the last cache;
 * larger ones are divided by panels. */
static const size_t LINEAR_MOST_BYTES = (size_t)32 << 20;

struct float_product {
    const struct kernels *kern;
    struct device *d;
    const struct weight *w;
    float *y; /* [rows], ldy apart; of panel first_panel and those after it */
    const float *x, *bias;
    size_t ldx, ldy;
    uint32_t first_panel;
    /* x: columns [first_col, first_col + x_cols) of the matrix; packed as [tiles][x_cols]
     * [tile_stride], of pairs [tiles][ceil(x_cols / 2)][tile_stride] */
    uint32_t first_col, x_cols;
    float *packed;
    float *units;                     /* [rows], of float16 in pairs */
    uint32_t rows, n_tiles, n_blocks; /* n_blocks: of rows for threads, or 0 */
};

/* The work while one pair of panels stays in the cache. */
struct row_block {
    size_t panel, end; /* the pair: [panel, end) */
    uint32_t k, cols;  /* columns [k, k + cols) of the matrix */
    ptrdiff_t next;    /* from this pair to the one after it, in bytes */
    float *wide;       /* room for the pair in fp32, of codes */
};

/* Elements of `packed` in a row: a pair of 16-bit numbers is one. */
static inline uint32_t packed_cols(const struct weight *w, uint32_t cols)
{
    return w->half ? (cols + 1) / 2 : cols;
}

/* Blocks of at most `most` tiles each, the same number for every thread. */
static inline uint32_t linear_blocks(uint32_t threads, uint32_t tiles, uint32_t most)
{
    return threads * ((tiles + threads * most - 1) / (threads * most));
}

/* Packs x of all tiles. */
void linear_pack(struct float_product *p);
/* Columns [b->k, b->k + b->cols) of panels [begin, end): y has their sums, or from the second
 * column of the matrix on continues them; after its last column it has the bias, too. */
void linear_columns(const struct float_product *p, struct row_block *b, size_t begin, size_t end);
/* arg: a struct float_product; all columns of panels [begin, end), with scales and bias. */
void linear_panels(void *arg, int thread, size_t begin, size_t end);
#endif
