/* conv.h - convolutions on grids of rows, on the host: what matrix products and the other
 * operations of a backend do not compute.
 *
 * A grid has rows [height * width][channels]: the numbers of one place side by side. A convolution
 * over all channels is conv_gather() and a matrix product. Functions compute rows [begin, end) of a
 * result, so that threads share it; no result depends on the division. Sums are chains of fused
 * multiply-adds, in the order of the window's places, with the same bits on every CPU. */
#ifndef MODEL_SERVER_ENCODER_CONV_H
#define MODEL_SERVER_ENCODER_CONV_H
#include "model-server/encoder/conv_shape.h"

/* to[row - begin][size * size][channels]: the window of each place, row by row. */
void conv_gather(float *to, const float *from, struct conv_shape in, struct conv_shape out,
                 const struct conv_window *w, size_t begin, size_t end);

/* Depthwise: channel c of the result is a convolution of channel c / each of the input, where
 * each = out.channels / in.channels. kernel: [each][size * size][in.channels]; bias:
 * [each][in.channels]. `to` is the first row of the whole result. */
struct conv_kernels;
void conv_depth(float *to, const float *from, struct conv_shape in, struct conv_shape out,
                const struct conv_window *w, const float *kernel, const float *bias,
                const struct conv_kernels *k, size_t begin, size_t end);

/* The mean of each square of `side` places; in has `side` times the places of out. */
void conv_mean(float *to, const float *from, struct conv_shape in, struct conv_shape out,
               size_t begin, size_t end);

/* Rows of `a`, each followed by the row of the smaller grid `b` at the nearest place. */
void conv_join(float *to, const float *a, struct conv_shape of_a, const float *b,
               struct conv_shape of_b, size_t begin, size_t end);

/* To the rows of conv_windows(), and back to the grid `of`. */
void conv_split(float *to, const float *from, struct conv_shape of, uint32_t size, size_t begin,
                size_t end);
void conv_merge(float *to, const float *from, struct conv_shape of, uint32_t size, size_t begin,
                size_t end);

/* Attention over channels (DaViT, arXiv 2204.03645). A row of `from` has q, k and v, of a third of
 * its channels each, which are divided into groups. factors[third][third / groups]: the softmax
 * over its group's channels k of the sums over rows of q[c] * k, by the root of the number of rows.
 * conv_channel_factors() computes those of channels [begin, end), conv_channels() with them rows of
 * the result: the sums of v. */
enum { CONV_MOST_CHANNELS = 256 }; /* of a group */
void conv_channel_factors(float *to, const float *from, struct conv_shape in, uint32_t groups,
                          size_t begin, size_t end);
void conv_channels(float *to, const float *from, struct conv_shape in, uint32_t groups,
                   const float *factors, size_t begin, size_t end);

/* Rows of `a`, then those of `b`. */
void conv_append(float *to, const float *a, size_t rows_of_a, const float *b, size_t channels,
                 size_t begin, size_t end);
/* Plus the learned position of each place, which is that of its column, then that of its row, and
 * plus `all`. columns: [width][channels - channels / 2]; rows: [height][channels / 2]. */
void conv_axes(float *to, const float *from, struct conv_shape in, const float *columns,
               const float *rows, const float *all, size_t begin, size_t end);

/* Relative positions as a part of queries and keys. A row of `from` has q, k and v of each head, of
 * `dim` numbers; its place is that in a square of `side` places. In `to`, q is q / sqrt(dim), its
 * products with rows of the table of rows, one for each row of keys, and the same for columns; k is
 * k, and 1 for its own row and column, else 0. Both have `wide` >= dim + 2 * side numbers, of which
 * the rest is 0; v follows. So q * k is the scaled product plus both positions' products. Tables:
 * [2 * side - 1][dim]; entry side - 1 + i is that of a query i places behind the key. */
struct conv_relation {
    uint32_t side, heads, dim, wide;
    const float *rows, *columns;
};
void conv_relate(float *to, const float *from, const struct conv_relation *r, size_t begin,
                 size_t end);

/* Tables for another size (conv_fit.c). A table of `of` rows of n numbers becomes one of `rows`,
 * linearly, edges aligned. */
void conv_fit_rows(float *to, uint32_t rows, const float *from, uint32_t of, uint32_t n);
/* The weight of cubic convolution with a = -1/2 (Keys 1981) at distance x. */
float conv_cubic(float x);
/* A table of side x side places becomes that of the grid `shape`, by cubic convolution with
 * antialiasing, edges aligned. scratch: side * (width * channels + 1) floats. */
void conv_fit_places(float *to, struct conv_shape shape, const float *from, uint32_t side,
                     float *scratch);

/* The inner loop, with a variant per instruction set; conv.c has the reference.
 * to[c * step] = bias[c] + the sum over j < n of x[j][c] * k[j][c], c < channels. */
#define CONV_SUM(name)                                                                             \
    void name(float *to, size_t step, const float *bias, const float *const *x,                    \
              const float *const *k, uint32_t n, uint32_t channels)
typedef CONV_SUM(conv_sum_fn);
conv_sum_fn conv_sum_ref, conv_sum_avx2, conv_sum_avx512;
struct conv_kernels {
    conv_sum_fn *sum;
};
/* Selects the fastest variant that `features` allows: bits of resample_features(). */
void conv_kernels_init(struct conv_kernels *k, unsigned features);
#endif
