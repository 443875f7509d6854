/* attention.h - between attention.c, which walks over rows and keys, and the forms of its products:
 * attention_vectors.c for every type of cache, and for bfloat16 in pairs; attention_squares.c for
 * bfloat16 on matrix units; attention_quads.c for int4 in products of integers. */
#ifndef MODEL_SERVER_BACKEND_CPU_ATTENTION_H
#define MODEL_SERVER_BACKEND_CPU_ATTENTION_H
#include "model-server/backend/cpu/cpu.h"
#include <stdatomic.h>

enum { SPLIT_PAGES = KV_SPLIT / KV_PAGE };
enum { ATTN_ROWS = 96 }; /* most rows of a tile, in either form */

/* Softmax sums so far, one entry per row: maximum, sum of exp, weighted values. */
struct attention_partial {
    float max[ATTN_ROWS], sum[ATTN_ROWS];
    float *o[ATTN_ROWS];
};

/* Working memory of one thread, in its scratch memory. What is behind `split` is of a form, which
 * also chooses how q lies. */
struct workspace {
    const char *pages[2 * SPLIT_PAGES + KV_AHEAD]; /* keys, values, next keys: in reading order */
    struct attention_partial split;
    void *q;
    float *s; /* scores, then weights: rows KV_SCORES_LD apart, from the range's first key on */
    float *o;
    /* pages of keys or of values: of vectors in bfloat16, of quads in bytes */
    char *wide[SPLIT_PAGES + KV_AHEAD];
    char *weights, *values;   /* of squares */
    int32_t *q_sums, *p_sums; /* of quads (kv_quads.h): of q and of the weights */
    float *q_scales, *p_scales;
    struct kv_seen keys[ATTN_ROWS]; /* the same: of ws->s, to which a row attends */
};

struct attn_job {
    struct device *d;
    const struct attn_form *form;
    const struct span *spans;
    float *o;
    const float *q;
    uint32_t q_stride, layer, group, n_units;
    uint32_t tile;  /* most rows of a unit */
    uint32_t v_dim; /* of a value in the cache; p->head_dim: of a key */
    const struct kv_cache *kv;
    struct kv_products products;
    const struct attn *p;
    const struct mutual *mutual; /* NULL: the layer does not use them */
    /* few tiles: [unit][max_splits] partial results of `tile` * (2 + v_dim) floats */
    float *partials;
    uint32_t max_splits;
    atomic_uint next;
};

/* Rows [first, first + n) of a span for one K/V head, and the union of their keys. */
struct rows {
    const struct span *span;
    uint32_t head, first, n;
    uint32_t lo, hi;
};

/* Keys of a split to which some row of the tile attends: [begin, end), `begin` at the start of a
 * page. */
struct range {
    uint32_t begin, end, pages;
};

/* A row's bits depend on what its token sees and on nothing else. */
struct attn_form {
    /* The most rows of a tile, at most ATTN_ROWS. */
    uint32_t (*tile)(const struct attn_job *j);
    /* Places the memory of a thread behind `ws`. */
    void (*open)(const struct attn_job *j, struct workspace *ws);
    void (*pack)(const struct attn_job *j, const struct rows *r, struct workspace *ws); /* q */
    /* Sets ws->split for the keys of `a`, whose pages are listed in ws->pages. */
    void (*split)(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                  const struct range *a);
};
extern const struct attn_form attn_vectors, attn_pairs, attn_squares, attn_quads;
/* The cache of the job's layer is bfloat16, the device multiplies in squares, and the sizes fit. */
bool attn_in_squares(const struct attn_job *j);

/* Positions to which a token of a span attends. Both ends are non-decreasing over tokens. */
struct kv_seen attn_sees(const struct attn_job *j, const struct span *s, uint32_t token);
/* Converts the scores of one row to weights, within its keys, and sets its maximum and sum in
 * ws->split. Returns its keys in the row of ws->s, [lo, hi); the others are undefined. */
struct kv_seen attn_weigh_row(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                              const struct range *a, uint32_t row);

/* The scales of a split's keys or values; none where the type has none. */
static inline struct kv_scaled attn_scales(const struct attn_job *j, const char *const *pages,
                                           uint32_t dim)
{
    const enum kv_dtype t = j->kv->desc.dtype;
    if (!kv_dtype_scaled(t))
        return (struct kv_scaled){NULL, 0};
    return (struct kv_scaled){pages, kv_dtype_bytes(t, (size_t)KV_PAGE * kv_padded(dim))};
}

static inline uint32_t row_pos(const struct attn_job *j, const struct rows *r, uint32_t row)
{
    return r->span->kv_len - r->span->n + (r->first + row) / j->group;
}

static inline uint32_t row_head(const struct attn_job *j, const struct rows *r, uint32_t row)
{
    return r->head * j->group + (r->first + row) % j->group;
}

static inline uint32_t row_token(const struct attn_job *j, const struct rows *r, uint32_t row)
{
    return r->span->first + (r->first + row) / j->group;
}

static inline const float *row_q(const struct attn_job *j, const struct rows *r, uint32_t row)
{
    return j->q + (size_t)row_token(j, r, row) * j->q_stride +
           (size_t)row_head(j, r, row) * j->p->head_dim;
}
#endif
