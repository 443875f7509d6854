/* kv_page.h - how keys and values lie in the cache, and what attention's kernels are asked.
 *
 * A page holds KV_PAGE positions of one K/V head of one layer, either its keys or its values. A
 * block is one or more pages, one behind the other.
 *
 *   keys    [head_dim][16 positions]: a vector is one dimension of 16 keys, so that the scores of
 * 16 keys are 16 independent chains over the dimensions. bf16: dimensions 2 k and 2 k + 1 of a
 *           position share 32 bits.
 *   values  [16 positions][head_dim]: a vector is 16 dimensions of one position, and a chain runs
 *           over the positions. bf16: dimensions d and d + 16 of every 32 share 32 bits; 16 left
 * over lie as they are.
 *
 * Pairs of bf16 are made fp32 by a shift (the first) or a mask (the second). Head dimensions are
 * padded to a multiple of 16. int4 lies as bf16 does, in pairs of nibbles; of 16 values left over,
 * d and d + 8 are a pair. A nibble is the number + 8. int8, int4 and fp8 are symmetric with one
 * scale for each position, in fp32 behind the numbers: a key's scale multiplies its scores, a
 * value's scale its weight. fp8 numbers are read as in numbers.h: by a shift they are f16. */
#ifndef MODEL_SERVER_BACKEND_CPU_KV_PAGE_H
#define MODEL_SERVER_BACKEND_CPU_KV_PAGE_H
#include "model-server/backend/backend.h"

enum { KV_PAGE = 16 };
/* Number of keys whose softmax is computed at once: splits begin at multiples of this
 * position. */
enum { KV_SPLIT = 256 };
/* Floats from one row of scores to the next, such that rows do not all map to one set of the
 * cache. */
enum { KV_SCORES_LD = KV_SPLIT + 16 };
/* Prefetch distance in pages: lists of pages have this many more entries than a call
 * processes. */
enum { KV_AHEAD = 4 };

static inline uint32_t kv_padded(uint32_t head_dim) { return (head_dim + 15) & ~15u; }

/* Dimensions of a key that are multiplied: those after the last are 0, as in q. */
static inline uint32_t kv_dims(uint32_t head_dim) { return (head_dim + 7) & ~7u; }

static inline size_t kv_page_bytes(enum kv_dtype t, uint32_t head_dim)
{
    const size_t n = kv_dtype_bytes(t, (size_t)KV_PAGE * kv_padded(head_dim));
    return kv_dtype_scaled(t) ? n + KV_PAGE * sizeof(float) : n;
}

/* bfloat16 represents every number of the type, without its scale. */
static inline bool kv_dtype_in_bf16(enum kv_dtype t) { return t == KV_BF16 || kv_dtype_scaled(t); }

static inline bool kv_dtype_paired(enum kv_dtype t) { return t == KV_BF16 || t == KV_I4; }

/* Index of the element in its page. Element 2 n of int4 is the low nibble of byte n. */
static inline size_t kv_key_at(enum kv_dtype t, uint32_t position, uint32_t d)
{
    return kv_dtype_paired(t) ? (size_t)(d & ~1u) * KV_PAGE + (size_t)2 * position + (d & 1)
                              : (size_t)d * KV_PAGE + position;
}

static inline size_t kv_value_at(enum kv_dtype t, uint32_t head_dim, uint32_t position, uint32_t d)
{
    uint32_t padded = kv_padded(head_dim), pair = d & ~31u;
    size_t row = (size_t)position * padded;
    if (t == KV_I4 && pair + 32 > padded)
        return row + pair + (size_t)2 * (d & 7) + (d >> 3 & 1);
    if (!kv_dtype_paired(t) || pair + 32 > padded)
        return row + d;
    return row + pair + (size_t)2 * (d & 15) + (d >> 4 & 1);
}

/* The 16 scales of a page that has them: after the numbers. */
static inline float *kv_scales(const char *page, enum kv_dtype t, uint32_t head_dim)
{
    return (float *)(void *)(page + kv_dtype_bytes(t, (size_t)KV_PAGE * kv_padded(head_dim)));
}

/* Pages with 16 fp32 scales each, `at` bytes behind their beginning. pages NULL: no scales. */
struct kv_scaled {
    const char *const *pages;
    size_t at;
};
static inline const float *kv_scales_of(const struct kv_scaled *s, uint32_t page)
{
    return s->pages ? (const float *)(const void *)(s->pages[page] + s->at) : NULL;
}

/* s[r][16 j + i] = the sum over d < kv_dims() of q[d][r] * key i of page j, d ascending; times
 * the key's scale if there are scales. r < rows <= TILE_ROWS, j < n. Every position of a page is
 * computed, whatever it contains. */
struct kv_scores {
    float *s; /* rows KV_SCORES_LD apart */
    /* [kv_dims(head_dim)][tile_stride(rows)] as written by pack(). Of pairs: half as many
     * words, with the bfloat16 numbers of dimensions 2 k, and 2 k + 1 in the upper half. */
    const float *q;
    uint32_t rows, head_dim, n;
    const char *const *pages; /* n, and KV_AHEAD more */
    struct kv_scaled scaled;  /* of bfloat16 pages that were widened: the keys' scales */
};

/* o[r][d] continues its chain over p[r][i] * value i, i = first .. end - 1 ascending, where value i
 * is position i % 16 of page i / 16. d runs over the padded head. */
struct kv_values {
    float *o;
    size_t ldo; /* elements between rows of o; a multiple of 16 */
    /* Rows KV_SCORES_LD apart. Of pairs: words with the bfloat16 weights of positions 2 i,
     * in the upper half, and 2 i + 1; of those outside of first .. end - 1 no value is read. */
    const float *p;
    uint32_t rows, head_dim, first, end;
    const char *const *pages; /* as many as `end` requires, and KV_AHEAD more */
};

/* Operands of squares (squares.h) that sum weighted values of bfloat16. A step is 32 positions, the
 * pages of 16 of them beside each other: columns 2 c and 2 c + 1 are positions c and c + 16. Where
 * the listed pages begin at the second half of a step, `lead` is 1, else 0. Positions of the list
 * that are outside of [first, end) are zeros, and are not read. */
struct kv_columns {
    uint32_t lead, steps, first, end;
};

/* Panels of 16 dimensions: panel p is `steps` steps at dst + p * steps * SQUARE_BYTES. */
struct kv_square_values {
    char *dst;
    const char *const *pages; /* and KV_AHEAD more */
    uint32_t dims;            /* a multiple of 32 */
    struct kv_columns at;
};

/* Positions [lo, hi), of a sequence or of a list. */
struct kv_seen {
    uint32_t lo, hi;
};

/* Rows of weights as x of squares (squares.h): `rows` of them at src, KV_SCORES_LD apart, finite or
 * NaN; each counts at the positions seen[row]. There are whole squares of `square` rows; those
 * after the last are zeros. */
struct kv_square_weights {
    char *dst;
    const float *src;
    const struct kv_seen *seen;
    uint32_t rows, square;
    uint32_t parts; /* 1: rounded; SQUARE_PARTS: their sum is the weight, from small to large */
    uint32_t lead, steps; /* as above */
};

/* Weighted values of up to 16 rows, laid out a step at a time: the sums that squares_bf16() has of
 * square_weights() and square_values(). */
struct kv_square_sum {
    float *sums; /* [rows], ld apart */
    size_t ld;
    const char *x; /* rows of weights */
    uint32_t rows, parts;
    struct kv_square_values values; /* without dst */
};
#endif
