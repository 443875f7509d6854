/* squares.h - sums of 16 rows of x with the 16 outputs of a panel, as matrix units compute them.
 *
 * A square is [16][16] sums of 32 bits. A step of it takes 64 bytes of each of its rows of x, which
 * lie together, and 1024 bytes of the panel: 32 columns of bf16 or 64 of int8. The panels are those
 * of kernels.h, which are the layout that the units of x86 (AMX) read.
 *
 *   squares_bf16  x and w are bfloat16. Of each step there are two chains of fused multiply-adds
 *                 from zero, over the even and over the odd columns, ascending; their sum is added
 *                 to the square. Subnormal numbers count as zero, also in sums and results.
 *   squares_i8    x is signed, w unsigned; sums are exact and wrap around.
 *
 * Weights of 8 bits, in panels of quads (kernels.h), are bfloat16 numbers times a scale, so their
 * panels are widened to squares, and scales are applied to sums.
 *
 * An fp32 number is the sum of three bfloat16 numbers, so x may have `parts`: a step multiplies
 * each of them with the same w, in their order, as if they were steps of their own. Products of
 * bfloat16 numbers are exact in fp32. So with SQUARE_PARTS of them only the sums are rounded.
 *
 * Weights of fp32 are split in the same way: a step of a panel is [SQUARE_PARTS][1024] bytes, and
 * SQUARE_PRODUCTS products of parts are added, with (part of x, part of w) in this order, where 2
 * is the greatest part: (2, 0), (2, 1), (1, 1), (1, 2), (0, 2), (2, 2). The other three are less
 * than 2^-21 of |x w| together. A number that is not finite gives NaN. */
#ifndef MODEL_SERVER_BACKEND_CPU_SQUARES_H
#define MODEL_SERVER_BACKEND_CPU_SQUARES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SQUARE = 16, SQUARE_STEP_BYTES = 64, SQUARE_BYTES = SQUARE * SQUARE_STEP_BYTES };
enum { SQUARE_AHEAD = 4 };
enum { SQUARE_PARTS = 3 }; /* bfloat16 numbers in an fp32 number: 3 x 8 bits of significand */
enum { SQUARE_PRODUCTS = 6 };

/* `tall` times `wide` squares, of `rows` rows each: 16, or fewer if tall is 1. */
struct squares {
    void *sums;        /* fp32 or int32: row r, panel p at sums + r * sums_bytes + 64 p */
    size_t sums_bytes; /* from one row of sums to the next */
    const char *x;     /* [tall][steps][parts][rows][64] */
    size_t x_bytes;    /* from 16 rows to the next 16 */
    const char *w;     /* panels */
    size_t w_bytes;    /* from one panel to the next */
    /* Where each of `wide` panels is, instead of w and w_bytes, and of SQUARE_AHEAD more, which are
     * prefetched as `next` is; NULL: w and w_bytes say so. */
    const char *const *panels;
    uint32_t tall, wide, steps, rows;
    uint32_t parts; /* 1 or SQUARE_PARTS; of int8 1 */
    bool split;     /* w has parts, too, and x has SQUARE_PARTS */
    bool add;       /* continue the existing sums, instead of starting at zero */
    /* Prefetches `fetch` bytes of each panel per step: `ahead` bytes ahead in the panel, and
     * after its last step from `next` on, panels next_bytes apart; with `panels` those that are
     * SQUARE_AHEAD further on. Multiples of 64; fetch 0:
     * nothing. Does not change a result. */
    size_t fetch, ahead, next_bytes;
    const char *next;
};

/* Sums of `rows` rows with `wide` panels, times a scale for each output, become or are added to
 * the sums of more columns. */
struct square_scales {
    float *to;          /* row r, panel p at to + r * bytes / 4 + 16 p */
    const float *sums;  /* the same */
    size_t bytes;       /* from one row to the next, in both */
    const char *scales; /* 16 numbers of fp32 for each panel, scale_bytes apart */
    size_t scale_bytes;
    uint32_t rows, wide;
    bool add; /* to = fma(sum, scale, to), else sum * scale */
};

/* Up to 16 rows with panels of quads: the sums of squares_bf16() with what square_int8() or
 * square_fp8() make of them, which is not stored. */
struct byte_squares {
    /* tall: 1; no `panels`; add: false. w: panels of quads, `steps` of 512 bytes, after which
     * `fetch` and `ahead` count. */
    struct squares of;
    uint32_t quads; /* in a panel; columns after them are zeros */
    /* Steps that share a scale: their sums are multiplied with it and added up; 0: no scales. */
    uint32_t scaled;
    const char *scales; /* of the first panel: [][16] fp32; of the next one w_bytes further on */
};
#endif
