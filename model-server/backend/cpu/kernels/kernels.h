/* kernels.h - the inner loops of the CPU backend: one typed slot per kernel, one row per variant.
 *
 * To add a kernel: a line in KERNELS, its meaning in base_ref.c, its rows in VARIANTS, its check
 * in tests/check/test_kernels.c. To add an instruction set: kernels_<isa>.c, a CPU_ bit, rows; the
 * file's suffix chooses the compiler's flags.
 *
 * Every variant of a kernel gives the same bits. That is possible because a kernel fixes the order
 * of its sums (below), and uses fused multiply-adds where it says so and nowhere else
 * (-ffp-contract=off). It takes transcendental functions from mathf.h, which are made of exactly
 * rounded operations.
 *
 * Panels. A matrix [rows][cols] is stored as panels of 16 rows. Within a panel the 16 elements of
 * one column are adjacent, so that 16 outputs fill a vector. Each output is one sequential chain
 * y = fma(w[k], x[k], y), k ascending, for any number of rows of x, threads and vector length. The
 * layout of a panel with K columns:
 *
 *   f32, f16   [K][16]
 *
 *   bf16       [ceil(K / 2)][16][2]: columns k and k + 1 of a row share 32 bits, so that fp32 is
 *              a shift (k, low half) or a mask (k + 1, high half) of them
 *
 * Weights are panels of output rows over input columns. The pages of the KV cache follow the same
 * idea: see kv_page.h. */
#ifndef MODEL_SERVER_BACKEND_CPU_KERNELS_KERNELS_H
#define MODEL_SERVER_BACKEND_CPU_KERNELS_KERNELS_H
#include "model-server/backend/cpu/code_panel.h"
#include "model-server/backend/cpu/code_squares.h"
#include "model-server/backend/cpu/kv_page.h"
#include "model-server/backend/cpu/kv_quads.h"
#include "model-server/backend/cpu/squares.h"
#include "model-server/backend/host/cpu_features.h"
#include "model-server/backend/host/lanes.h"
#include "model-server/backend/host/round.h"

enum { F16_FLUSH = 64 }; /* pairs that are summed in float16 before the sum is added in fp32 */
enum { TILE_ROWS = 12 }; /* most rows of x that a tile kernel takes */
/* A step of a tile kernel reads this many bytes of each panel: one column of fp32, two of a
 * 16-bit type, four of int8. */
enum { STEP_BYTES = 64 };

/* y[t][i] (+)= sum over k of x[k][t] * w[i][k], for t < rows <= TILE_ROWS and i < n. x is
 * transposed, [k][tile_stride(rows)], as written by pack(). Nothing after y[t][n - 1] is
 * written. */
struct tile {
    float *y;
    size_t ldy; /* elements between rows of y */
    const float *x;
    const void *w;  /* panels */
    size_t w_bytes; /* from one panel to the next */
    uint32_t rows, n, k;
    bool add; /* continue the chains in y, instead of starting at zero */
    /* tile_f32, _f16, _bf16, _bf16x2: NULL, or a number for each output, which is added to its
     * finished sum. */
    const float *bias;
    /* tile_fp8: NULL, or 16 factors of the sums of the first panel, those of the next w_bytes
     * later. Then y = sum * factor, or with `add` y = fma(sum, factor, y); the sum starts at
     * zero. */
    const float *factors;
    /* Prefetch distance in each panel in bytes, a multiple of 64; 0: none. Beyond a panel's end
     * it continues `next` bytes from its beginning; 0: in the panels after the current ones. Each
     * step of 64 bytes advances it by `pace`; 0: by 64. */
    uint32_t ahead, pace;
    ptrdiff_t next;
};

/* Quantised panels, in quads: four columns of a row side by side in 32 bits.
 *   int8   [quads][16][4] bytes w + 128 (w is -127 or more), then 16 fp32 scales
 *   fp8    [quads][16][4] e4m3, none of them NaN, then 16 fp32 scales, for the whole panel or for
 *          each block of columns.
 * 8-bit activations of a tile are [quads + 2][rows]: their quads, an fp32 scale, and an int32,
 * minus the zero point (128) times the sum of the numbers. Columns past the last are zero. y[t][i]
 * = float(sum of w x) * (w's scale * x's scale). */
enum { INT_TILE_ROWS = 16 }; /* most rows of x that a quantised tile takes */
/* Two quads of a row have four weights in each half of a quad. Two steps of a panel fit 16 bits if
 * the magnitudes of such four add up to at most 258: 258 * 127 < 2^15. Bit b % 8 of byte b / 8:
 * all pairs of steps of the b-th INT_FIT_STEPS do. */
enum { INT_FIT_STEPS = 8, INT_FIT_MOST = 258, INT_FIT_BYTES = 512 };
enum { INT_FIT_COLS = INT_FIT_BYTES * 8 * INT_FIT_STEPS * 4 };
struct int_tile {
    float *y;
    size_t ldy;
    const int32_t *x;
    const void *w;
    size_t w_bytes;
    uint32_t rows, n, k; /* rows <= INT_TILE_ROWS */
    /* Of each panel INT_FIT_BYTES as fits_w8a8() writes them, or NULL. The result is the same. */
    const uint8_t *fits;
    /* Prefetch address: with every 64 bytes of a panel it advances by `fetch_step`; the same
     * offset is prefetched for the following panels. NULL: some KiB ahead in the current
     * panels. */
    const char *fetch;
    size_t fetch_step;
};

/* Products of panels of codes (code_panel.h) with activations in 8 bits. For each 32 columns and
 * row of a tile the activations are CODE_X_WORDS words:
 *
 *   8 quads     2e and 2e + 1: columns 0 2 4 6 and 1 3 5 7 of the e-th eight, -127 .. 127
 *
 *   the scale   fp32
 *
 *   2 terms     one for the columns that share a scale of weights, all 32 or each 16. With
 *               offsets or zero points: fp32, -(scale * sum of the x's). Otherwise: int32, minus
 *               n of 0 times that sum
 *
 *   2 sums      of those x's, int16
 *
 * An output is a chain of fma over these groups, ascending, from 0 or from y: without offsets
 *   y = fma(float(sum of n x + term), w's scale * x's scale, y),
 * with offsets
 *   y = fma(offset, term, fma(float(sum of n x), w's scale * x's scale, y)).
 * Here w's scale = scale * by and offset = offset * less of code_panel.h. */
enum { CODE_X_WORDS = 12, CODE_X_SCALE = 8, CODE_X_TERM = 9, CODE_X_SUMS = 11 };

static inline int32_t code_x_sums(int32_t first, int32_t second)
{
    return (int32_t)((uint32_t)second << 16 | (uint16_t)first);
}

static inline int32_t code_x_sum(const int32_t *x, uint32_t half)
{
    return half ? x[CODE_X_SUMS] >> 16 : (int16_t)x[CODE_X_SUMS];
}

/* What unpack() makes of 32 columns of a panel: [8][16][4] bytes n in the order of the quads, then
 * fp32 [2][16] scales and [2][16] offsets of w. */
enum { CODE_WIDE_SCALE = 512, CODE_WIDE_OFFSET = 640, CODE_WIDE_BYTES = 768 };
enum { CODE_TILE_ROWS = 16 }; /* most rows of x of a tile */
struct code_tile {
    float *y;
    size_t ldy;
    const int32_t *x; /* [ceil(k / 32)][rows][CODE_X_WORDS] */
    const void *w;    /* packed panels, or the result of unpack() for columns of one panel */
    size_t w_bytes;
    const struct code_layout *layout;
    uint32_t rows, n, k;
    bool add; /* tile_wide: continue the chains in y */
    /* tile_wide: prefetch address, `fetch_step` bytes with every 32 columns. */
    const char *fetch;
    size_t fetch_step;
};

static inline uint32_t tile_stride(uint32_t rows) { return rows <= 2 ? rows : (rows + 3) & ~3u; }

/* A token of one head of a recurrent layer (backend.h). Its state lies in panels of 16 values,
 * [keys][16] floats, `panel` floats apart; `n` values are in them, what is past the last is zero.
 *   u[j] = beta * (v[j] - decay * sum over i of k[i] S[i][j]), or without `delta` beta * v[j]
 *   S[i][j] = fma(k[i], u[j], decay * S[i][j])
 *   o[j] = sum over i of q[i] S[i][j], then, with `skip`, fma(skip, v[j], o[j])
 * where the sums are chains of fma from zero, i ascending. With `rates` (RECUR_SCAN) u[j] is
 * steps[j] * v[j], the decay of S[i][j] is exp(rates[i][j] * steps[j]), and skip has n elements.
 * With `decays` decays[i] replaces decay in S[i][j], and u[j] is beta * (v[j] - sum over i of
 * (k[i] * decays[i]) S[i][j]).
 * With `erase` (RECUR_RWKV) and e[j] = sum over i of erase[i] S[i][j]:
 *   S[i][j] = fma(-put[i], e[j], fma(k[i], v[j], decays[i] * S[i][j])) */
enum { RECUR_PANELS = 4 };
struct recur_step {
    const float *from; /* the state before it; may be s */
    float *s;
    size_t panel;
    uint32_t keys, n; /* n <= RECUR_PANELS * LANES */
    const float *k, *q, *v, *skip;
    const float *rates, *steps; /* [keys] rows `rate_stride` apart, [n]; or NULL */
    size_t rate_stride;
    const float *decays;      /* [keys] or NULL; with `delta` or `erase` */
    const float *erase, *put; /* [keys] or NULL */
    float decay, beta;
    bool delta;
    float *o;
};

/*  kernel       result  arguments */
#define KERNELS(X)                                                                                 \
    X(tile_f32, void, (const struct tile *t))                                                      \
    X(tile_f16, void, (const struct tile *t))                                                      \
    X(tile_bf16, void, (const struct tile *t))                                                     \
    /* x as bfloat16, in pairs like w: [ceil(k / 2)][tile_stride(rows)][2]. Of a pair the second   \
     * product is added first, each by fma; subnormal numbers count as zero, also in sums. */      \
    X(tile_bf16x2, void, (const struct tile *t))                                                   \
    /* The same of float16, w too in pairs. Of each F16_FLUSH pairs two chains of fma, both in     \
     * float16: the first columns and the second ones. Their sum in float16 is added to y. */      \
    X(tile_f16x2, void, (const struct tile *t))                                                    \
    X(tile_int8, void, (const struct tile *t)) /* of w without its scale */                        \
    X(tile_fp8, void, (const struct tile *t))  /* the same */                                      \
    /* Columns k .. k + n - 1 of a panel that holds codes, [n][16]. k and n are multiples of 32.   \
     */                                                                                            \
    X(widen_codes, void,                                                                           \
      (float *dst, const char *panel, const struct code_layout *l, uint32_t k, uint32_t n))        \
    /* y[i] = sum over k of x[k] * w[i][k], i < n, of panels w_bytes apart that hold codes */      \
    X(dot_codes, void,                                                                             \
      (float *y, const float *x, const char *w, size_t w_bytes, const struct code_layout *l,       \
       uint32_t n, uint32_t k))                                                                    \
    /* 32 columns of a row of x for panels of this layout, as words above */                       \
    X(round_x, void, (int32_t * dst, const float *src, const struct code_layout *l))               \
    /* with packed panels */                                                                       \
    X(tile_codes, void, (const struct code_tile *t))                                               \
    /* columns k .. k + n - 1 of a panel, multiples of 32, as CODE_WIDE_BYTES for each 32 */       \
    X(unpack, void,                                                                                \
      (char *dst, const char *panel, const struct code_layout *l, uint32_t k, uint32_t n))         \
    X(tile_wide, void, (const struct code_tile *t)) /* with one panel that is unpacked */          \
    /* code_squares.h: 32 columns of a row of x to its row of a record or two */                   \
    X(square_x, void, (char *dst, const float *src, const struct code_layout *l, uint32_t row))    \
    /* columns [k, k + n) of a panel to records; multiples of 32 */                                \
    X(square_w, void,                                                                              \
      (char *dst, const char *panel, const struct code_layout *l, uint32_t k, uint32_t n))         \
    X(squares_codes, void, (const struct code_squares *t))                                         \
    X(tile_w8a8, void, (const struct int_tile *t))                                                 \
    /* which of the blocks of a panel with k columns, at most INT_FIT_COLS, fit 16 bits */         \
    X(fits_w8a8, void, (uint8_t * fits, const void *panel, uint32_t k))                            \
    X(squares_bf16, void, (const struct squares *t))                                               \
    X(squares_i8, void, (const struct squares *t))                                                 \
    /* quads of a panel as numbers of bfloat16 in pairs, without their scales: [2 quads][16][2] */ \
    X(square_int8, void, (char *dst, const char *quads, uint32_t n))                               \
    X(square_fp8, void, (char *dst, const char *quads, uint32_t n))                                \
    /* n columns of a panel of fp32 in parts, as whole steps of [SQUARE_PARTS][16][16][2] bfloat16 \
     * numbers, with zeros after the last column */                                                \
    X(square_f32, void, (char *dst, const float *panel, uint32_t n))                               \
    X(scale_squares, void, (const struct square_scales *t))                                        \
    X(squares_int8, void, (const struct byte_squares *t))                                          \
    X(squares_fp8, void, (const struct byte_squares *t))                                           \
    /* y[i] = float(sums[i] + plus) * (sw[i % 16] * sx), where the 16 scales of the next panel lie \
     * sw_bytes after those of the last */                                                         \
    X(scale_sums, void,                                                                            \
      (float *y, const int32_t *sums, const float *sw, size_t sw_bytes, float sx, int32_t plus,    \
       uint32_t n))                                                                                \
    ROUND_KERNELS(X)                                                                               \
    /* from storage */                                                                             \
    X(widen_f16, void, (float *dst, const uint16_t *src, uint32_t n))                              \
    X(widen_bf16, void, (float *dst, const uint16_t *src, uint32_t n))                             \
    /* dst[k * tile_stride(rows) + t] = scale * src[t][k], k < n */                                \
    X(pack, void, (float *dst, const float *const *src, uint32_t rows, uint32_t n, float scale))   \
    /* the same of n columns as bfloat16, in pairs: word k / 2 * tile_stride(rows) + t has columns \
     * k and k + 1 of row t; past the last one is zero */                                          \
    X(pack_bf16x2, void, (float *dst, const float *const *src, uint32_t rows, uint32_t n))         \
    /* to storage, rounded to nearest even */                                                      \
    X(narrow_f16, void, (uint16_t * dst, const float *src, uint32_t n))                            \
    X(narrow_bf16, void, (uint16_t * dst, const float *src, uint32_t n))                           \
    /* src as the sum of dst[2], dst[1] and dst[0], from large to small, without rounding. The     \
     * smaller ones of infinity and NaN are zero. */                                               \
    X(split_bf16, void, (uint16_t *const dst[3], const float *src, uint32_t n))                    \
    /* y = x / rms(x) * w (+ b), and (x - mean) / sd * w (+ b); y may be x. Sums: see lane_sum */  \
    X(norm_rms, void,                                                                              \
      (float *y, const float *x, const float *w, const float *b, uint32_t n, float eps))           \
    X(norm_layer, void,                                                                            \
      (float *y, const float *x, const float *w, const float *b, uint32_t n, float eps))           \
    /* sum of x[i] * w[i]: element i in chain i % 64, chains 16 apart added up to (0 + 1) + (2 +   \
     * 3) of them, then the lane_sum */                                                            \
    X(dot, float, (const float *x, const float *w, uint32_t n))                                    \
    /* x = fma(a, r, x) */                                                                         \
    X(axpy, void, (float *x, const float *r, float a, uint32_t n))                                 \
    /* y = act(x) * m, or what the gated kinds say of x and m; act(x) where m is NULL; y may be x  \
     */                                                                                            \
    X(act, void, (float *y, const float *x, const float *m, uint32_t n, enum act kind))            \
    /* x = cap * tanh(x * scale / cap); cap 0: x * scale */                                        \
    X(soft_cap, void, (float *x, uint32_t n, float scale, float cap))                              \
    /* softmax in two steps; n is a multiple of 16 */                                              \
    /* the greatest magnitude; not finite where one is not */                                      \
    X(row_top, float, (const float *x, uint32_t n))                                                \
    X(row_max, float, (const float *x, uint32_t n))                                                \
    X(exp_sum, float, (float *x, uint32_t n, float max)) /* x = exp(x - max); the lane_sum of x */ \
    /* attention over pages of the cache: see kv_page.h */                                         \
    X(scores_f32, void, (const struct kv_scores *t))                                               \
    X(scores_f16, void, (const struct kv_scores *t))                                               \
    X(scores_bf16, void, (const struct kv_scores *t))                                              \
    X(scores_i8, void, (const struct kv_scores *t))                                                \
    X(scores_fp8, void, (const struct kv_scores *t))                                               \
    X(scores_i4, void, (const struct kv_scores *t))                                                \
    X(values_f32, void, (const struct kv_values *t))                                               \
    X(values_f16, void, (const struct kv_values *t))                                               \
    X(values_bf16, void, (const struct kv_values *t))                                              \
    X(values_i8, void, (const struct kv_values *t))                                                \
    X(values_fp8, void, (const struct kv_values *t))                                               \
    X(values_i4, void, (const struct kv_values *t))                                                \
    /* n pages of a type with scales as pages of bfloat16, without the scales; dim is of a head.   \
     * KV_AHEAD more pages are listed. */                                                          \
    X(widen_keys, void,                                                                            \
      (char *const *dst, const char *const *pages, uint32_t n, uint32_t dim, enum kv_dtype t))     \
    X(widen_values, void,                                                                          \
      (char *const *dst, const char *const *pages, uint32_t n, uint32_t dim, enum kv_dtype t))     \
    /* in pairs of bfloat16: the upper numbers of two words are multiplied first, then the lower   \
     * ones, each added to the sum and rounded. Subnormal numbers count as zero, also in sums. */  \
    X(scores_pairs_bf16, void, (const struct kv_scores *t))                                        \
    X(scores_pairs_i8, void, (const struct kv_scores *t))                                          \
    X(scores_pairs_fp8, void, (const struct kv_scores *t))                                         \
    X(scores_pairs_i4, void, (const struct kv_scores *t))                                          \
    X(values_pairs_bf16, void, (const struct kv_values *t))                                        \
    X(values_pairs_i8, void, (const struct kv_values *t))                                          \
    X(values_pairs_fp8, void, (const struct kv_values *t))                                         \
    X(values_pairs_i4, void, (const struct kv_values *t))                                          \
    /* the weights of `pages` pages, times their values' scales, as values_pairs() reads them;     \
     * rounded to nearest even, in place; NaN stays NaN */                                         \
    X(pair_weights, void, (float *p, uint32_t pages, const struct kv_scaled *scaled))              \
    /* kv_quads.h; n pages are packed to dst, dim is of a head, KV_AHEAD more pages are listed */  \
    X(kv_to_bytes, void, (struct kv_to_bytes * t))                                                 \
    X(scores_quads, void, (const struct kv_quad_scores *t))                                        \
    X(values_quads, void, (const struct kv_quad_values *t))                                        \
    X(quads_of_keys, void, (char *const *dst, const char *const *pages, uint32_t n, uint32_t dim)) \
    X(quads_of_values, void,                                                                       \
      (char *const *dst, const char *const *pages, uint32_t n, uint32_t dim))                      \
    /* kv_page.h; square_values() returns false if it read a number that is not finite */          \
    X(square_values, bool, (const struct kv_square_values *t))                                     \
    X(square_weights, void, (const struct kv_square_weights *t))                                   \
    X(square_sum, bool, (const struct kv_square_sum *t)) /* as square_values() */                  \
    /* n numbers to fp8 (numbers.h); returns the scale: greatest magnitude / FP8_TOP. Below 2^-120 \
     * all are zero; where one is not finite, NaN and zeros. */                                    \
    X(quantise_fp8, float, (uint8_t * dst, const float *src, uint32_t n))                          \
    /* p[r][i] *= scales[i / 16][i % 16], i < 16 n; rows KV_SCORES_LD apart. The scales of a page  \
     * lie `scales` bytes behind its beginning. */                                                 \
    X(weigh, void, (float *p, uint32_t rows, const char *const *pages, uint32_t n, size_t scales)) \
    /* o = fma(p, b, o * a): two partial attention results into one */                             \
    X(merge, void, (float *o, const float *p, float a, float b, uint32_t n))                       \
    /* Rotate rot / 2 pairs of v: (a, b) -> (a c - b s, b c + a s). rope: rot / 2 c, then s. */    \
    X(rotate, void, (float *v, const float *rope, uint32_t rot, bool interleaved))                 \
    /* x = x * g, or x * sigmoid(g) */                                                             \
    X(gate, void, (float *x, const float *g, uint32_t n, bool sigmoid))                            \
    /* y[c] = bias[c] (or 0), then fma(w[j * stride + c], x[j][c], y[c]), j < width ascending */   \
    X(conv_row, void,                                                                              \
      (float *y, const float *const *x, const float *w, size_t stride, const float *bias,          \
       uint32_t width, uint32_t n))                                                                \
    X(recur, void, (const struct recur_step *t))

#define ALL_KERNELS(X, variant, needs)                                                             \
    X(tile_f32, variant, needs)                                                                    \
    X(tile_f16, variant, needs)                                                                    \
    X(tile_bf16, variant, needs)                                                                   \
    X(tile_int8, variant, needs)                                                                   \
    X(tile_fp8, variant, needs)                                                                    \
    X(widen_codes, variant, needs)                                                                 \
    X(dot_codes, variant, needs)                                                                   \
    X(scale_sums, variant, needs)                                                                  \
    X(widen_f16, variant, needs)                                                                   \
    X(widen_bf16, variant, needs)                                                                  \
    X(pack, variant, needs)                                                                        \
    X(narrow_f16, variant, needs)                                                                  \
    X(narrow_bf16, variant, needs)                                                                 \
    X(split_bf16, variant, needs)                                                                  \
    X(norm_rms, variant, needs)                                                                    \
    X(norm_layer, variant, needs)                                                                  \
    X(dot, variant, needs)                                                                         \
    X(axpy, variant, needs)                                                                        \
    X(act, variant, needs)                                                                         \
    X(soft_cap, variant, needs)                                                                    \
    X(row_top, variant, needs)                                                                     \
    X(row_max, variant, needs)                                                                     \
    X(exp_sum, variant, needs)                                                                     \
    X(scores_f32, variant, needs)                                                                  \
    X(scores_f16, variant, needs)                                                                  \
    X(scores_bf16, variant, needs)                                                                 \
    X(scores_i8, variant, needs)                                                                   \
    X(scores_fp8, variant, needs)                                                                  \
    X(scores_i4, variant, needs)                                                                   \
    X(values_f32, variant, needs)                                                                  \
    X(values_f16, variant, needs)                                                                  \
    X(values_bf16, variant, needs)                                                                 \
    X(values_i8, variant, needs)                                                                   \
    X(values_fp8, variant, needs)                                                                  \
    X(values_i4, variant, needs)                                                                   \
    X(widen_keys, variant, needs)                                                                  \
    X(widen_values, variant, needs)                                                                \
    X(weigh, variant, needs)                                                                       \
    X(merge, variant, needs)                                                                       \
    X(rotate, variant, needs)                                                                      \
    X(gate, variant, needs)                                                                        \
    X(conv_row, variant, needs)                                                                    \
    X(recur, variant, needs)

#define CODE_KERNELS(X, variant, needs)                                                            \
    X(round_x, variant, needs)                                                                     \
    X(tile_codes, variant, needs)                                                                  \
    X(unpack, variant, needs)                                                                      \
    X(tile_wide, variant, needs)

#define INT_KERNELS(X, variant, needs)                                                             \
    CODE_KERNELS(X, variant, needs)                                                                \
    X(tile_w8a8, variant, needs)

#define CODE_SQUARE_KERNELS(X, variant, needs)                                                     \
    X(square_x, variant, needs)                                                                    \
    X(square_w, variant, needs)                                                                    \
    X(squares_codes, variant, needs)

#define BYTE_SQUARE_KERNELS(X, variant, needs)                                                     \
    X(square_int8, variant, needs)                                                                 \
    X(square_fp8, variant, needs)                                                                  \
    X(square_f32, variant, needs)                                                                  \
    X(scale_squares, variant, needs)

#define BYTE_STREAM_KERNELS(X, variant, needs)                                                     \
    X(squares_int8, variant, needs)                                                                \
    X(squares_fp8, variant, needs)

#define KV_PAIR_KERNELS(X, variant, needs)                                                         \
    X(scores_pairs_bf16, variant, needs)                                                           \
    X(scores_pairs_i8, variant, needs)                                                             \
    X(scores_pairs_fp8, variant, needs)                                                            \
    X(scores_pairs_i4, variant, needs)                                                             \
    X(values_pairs_bf16, variant, needs)                                                           \
    X(values_pairs_i8, variant, needs)                                                             \
    X(values_pairs_fp8, variant, needs)                                                            \
    X(values_pairs_i4, variant, needs)                                                             \
    X(pair_weights, variant, needs)

#define KV_QUAD_KERNELS(X, variant, needs)                                                         \
    X(kv_to_bytes, variant, needs)                                                                 \
    X(scores_quads, variant, needs)                                                                \
    X(values_quads, variant, needs)                                                                \
    X(quads_of_keys, variant, needs)                                                               \
    X(quads_of_values, variant, needs)

#define KV_SQUARE_KERNELS(X, variant, needs)                                                       \
    X(square_values, variant, needs)                                                               \
    X(square_weights, variant, needs)                                                              \
    X(square_sum, variant, needs)

/* From slowest to fastest: the last row that the CPU supports is used. */
#define PLAIN_VARIANTS(X)                                                                          \
    ROUND_VARIANTS(X)                                                                              \
    ALL_KERNELS(X, ref, 0)                                                                         \
    INT_KERNELS(X, ref, 0)                                                                         \
    CODE_SQUARE_KERNELS(X, ref, 0)                                                                 \
    KV_SQUARE_KERNELS(X, ref, 0)                                                                   \
    BYTE_SQUARE_KERNELS(X, ref, 0)                                                                 \
    BYTE_STREAM_KERNELS(X, ref, 0)                                                                 \
    X(tile_f16x2, ref, 0)                                                                          \
    X(tile_bf16x2, ref, 0)                                                                         \
    X(pack_bf16x2, ref, 0)                                                                         \
    KV_PAIR_KERNELS(X, ref, 0)                                                                     \
    KV_QUAD_KERNELS(X, ref, 0)                                                                     \
    X(squares_bf16, ref, 0)                                                                        \
    X(squares_i8, ref, 0)                                                                          \
    X(fits_w8a8, ref, 0)                                                                           \
    X(quantise_fp8, ref, 0)
#if defined(__x86_64__)
#define VARIANTS(X)                                                                                \
    PLAIN_VARIANTS(X)                                                                              \
    ALL_KERNELS(X, avx2, CPU_AVX2)                                                                 \
    INT_KERNELS(X, avx2, CPU_AVX2)                                                                 \
    KV_QUAD_KERNELS(X, avx2, CPU_AVX2)                                                             \
    X(fits_w8a8, avx2, CPU_AVX2)                                                                   \
    INT_KERNELS(X, avxvnni, CPU_AVX2 | CPU_AVX_VNNI)                                               \
    KV_QUAD_KERNELS(X, avxvnni, CPU_AVX2 | CPU_AVX_VNNI)                                           \
    ALL_KERNELS(X, avx512, CPU_AVX512)                                                             \
    BYTE_SQUARE_KERNELS(X, avx512, CPU_AVX512)                                                     \
    INT_KERNELS(X, avx512vnni, CPU_AVX512 | CPU_AVX512_VNNI)                                       \
    KV_QUAD_KERNELS(X, avx512vnni, CPU_AVX512 | CPU_AVX512_VNNI)                                   \
    X(tile_f16x2, avx512fp16, CPU_AVX512 | CPU_AVX512_FP16)                                        \
    X(tile_bf16x2, avx512bf16, CPU_AVX512 | CPU_AVX512_BF16)                                       \
    X(pack_bf16x2, avx512bf16, CPU_AVX512 | CPU_AVX512_BF16)                                       \
    KV_PAIR_KERNELS(X, avx512bf16, CPU_AVX512 | CPU_AVX512_BF16)                                   \
    CODE_SQUARE_KERNELS(X, avx512amx, CPU_AVX512 | CPU_AMX_BF16)                                   \
    KV_SQUARE_KERNELS(X, avx512amx, CPU_AVX512 | CPU_AMX_BF16)                                     \
    BYTE_STREAM_KERNELS(X, avx512amx, CPU_AVX512 | CPU_AMX_BF16)                                   \
    X(squares_bf16, amx, CPU_AMX_BF16)                                                             \
    X(squares_i8, amx, CPU_AMX_INT8)
#elif defined(__aarch64__)
#define VARIANTS(X)                                                                                \
    PLAIN_VARIANTS(X)                                                                              \
    ALL_KERNELS(X, neon, CPU_NEON)                                                                 \
    INT_KERNELS(X, neon, CPU_NEON)                                                                 \
    KV_QUAD_KERNELS(X, neon, CPU_NEON)                                                             \
    INT_KERNELS(X, neondot, CPU_NEON | CPU_NEON_DOT)                                               \
    KV_QUAD_KERNELS(X, neondot, CPU_NEON | CPU_NEON_DOT)                                           \
    CODE_KERNELS(X, neoni8mm, CPU_NEON | CPU_NEON_I8MM)                                            \
    X(tile_f16x2, neonfp16, CPU_NEON | CPU_NEON_FP16)
#else
#define VARIANTS(X) PLAIN_VARIANTS(X)
#endif

#define X(op, ret, args) typedef ret op##_fn args;
KERNELS(X)
#undef X
#define X(op, variant, needs) op##_fn k_##op##_##variant;
VARIANTS(X)
#undef X

struct kernels {
    uint32_t mr;      /* rows of x that fill the registers: the limit of tiles in a large product */
    uint32_t mr_w8a8; /* the same for 8-bit activations */
    uint32_t fit_w8a8;          /* tiles of a product for which fits_w8a8() pays; 0: none */
    uint32_t mr_codes, mr_wide; /* rows of tiles of tile_codes, and of tile_wide */
    uint32_t few_codes;         /* up to this many rows tile_codes is the faster one */
#define X(op, ret, args) op##_fn *op;
    KERNELS(X)
#undef X
};

void kernels_init(struct kernels *k, unsigned features);

/* The same list as data, for the check and the benchmark. Ends with op == NULL. */
struct kernel_row {
    const char *op, *variant;
    unsigned needs;
    void (*fn)(void);
};
extern const struct kernel_row kernel_rows[];
#endif
