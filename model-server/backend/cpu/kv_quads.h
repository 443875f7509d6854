/* kv_quads.h - attention whose products are those of integers: keys and values of int4 as they lie
 * in the cache (kv_page.h), with q and the softmax weights rounded to bytes of -127 to 127. An
 * instruction multiplies four bytes, a word, with a quad of the cache.
 *
 * q has a scale for each row. The weights, which are multiplied with the values' scales before,
 * have one for each row and QUAD_GROUP positions. Where a token has most of the weight of a split,
 * one scale for all 256 would round the many small weights to zero.
 *
 * Sums of integers are exact, so they have no order: the largest is 8 * 127 * MAX_HEAD_DIM. A
 * weight of 0 removes a position whatever it holds, because the cache's integers are finite; only
 * its scale may be NaN.
 *
 * Packed pages. For several rows a page is reordered once, in quads, one byte for each number + 8:
 *
 *   keys    [kv_dims / 4][16 positions][4 dimensions]
 *   values  [padded dimensions / 16][4][16 dimensions][4 positions]
 *
 * Two quads of keys hold dimensions 0 2 4 6 and 1 3 5 7 of eight, as the nibbles do; the words of q
 * have the same order. */
#ifndef MODEL_SERVER_BACKEND_CPU_KV_QUADS_H
#define MODEL_SERVER_BACKEND_CPU_KV_QUADS_H
#include "model-server/backend/cpu/kv_page.h"

enum { QUAD_TOP = 127 }; /* of a byte */
enum { NIBBLE_ZERO = 8 };
/* Positions that share a scale of weights; groups begin at multiples of it in the sequence. */
enum { QUAD_GROUP = 64, QUAD_GROUPS = KV_SPLIT / QUAD_GROUP };

/* Dimension of byte `i` of the words of q and of packed keys. */
static inline uint32_t kv_quad_dim(uint32_t i) { return (i & ~7u) + (i & 3) * 2 + (i >> 2 & 1); }

/* A row of numbers to bytes, in groups. */
struct kv_to_bytes {
    int8_t *dst;     /* n; may be x itself */
    float *x;        /* undefined afterwards */
    uint32_t n;      /* a multiple of 16 */
    uint32_t lo, hi; /* the others count as 0, whatever they are */
    /* Numbers of a group, a multiple of 16; the first one lacks the `lead` numbers before x. */
    uint32_t group, lead;
    struct kv_scaled scaled; /* multiplies each number before */
    /* Of each group: the scale, greatest magnitude / 127, and the sum of the bytes. Below 2^-100
     * all are zero; where one is not finite, the scale is NaN and the bytes are zeros. */
    float *scales;
    int32_t *sums;
};

/* s[r][16 j + i] = float(sum of products) * (row's scale * key's scale), of key i of page j < n.
 * Every position of a page is computed. */
struct kv_quad_scores {
    float *s;            /* rows KV_SCORES_LD apart */
    const int32_t *q;    /* [kv_dims / 4][rows] words */
    const int32_t *sums; /* [rows] of the bytes of a row */
    const float *scales; /* [rows] */
    uint32_t rows, head_dim, n;
    bool packed;
    const char *const *pages; /* n, and KV_AHEAD more if they are not packed */
    struct kv_scaled scaled;  /* the keys' scales */
};

/* o[r][d]: from 0 a chain of fma(float(sum of weights times values), scale, o) over groups,
 * ascending. d runs over the padded head. */
struct kv_quad_values {
    float *o;
    size_t ldo;          /* elements between rows of o; a multiple of 16 */
    const int8_t *p;     /* weights of `pages`, in rows */
    size_t ldp;          /* bytes between the rows */
    const int32_t *sums; /* [rows][QUAD_GROUPS] */
    const float *scales; /* the same */
    uint32_t rows, head_dim, n;
    uint32_t lead; /* pages that the first group lacks */
    bool packed;
    const char *const *pages; /* n, and KV_AHEAD more if they are not packed */
};
#endif
