/* streams.c - records the operations of parallel residual streams: streams.cu. */
#include "model-server/backend/cuda/cuda.h"
#include <assert.h>

void cuda_altup(struct device *d, float *x, uint32_t rows, uint32_t n, const struct altup *p)
{
    struct altup_args args = {.x = x,
                              .streams = p->streams,
                              .coefs = p->coefs,
                              .rows = rows,
                              .n = n,
                              .kind = p->kind,
                              .streams_n = p->n,
                              .active = p->active};
    assert(p->n <= ALTUP_MOST && p->active < p->n);
    if (rows)
        RECORD(d, altup_launch, args);
}

void cuda_match_rows(struct device *d, float *y, const float *x, const float *like, uint32_t rows,
                     uint32_t n, bool add)
{
    struct match_args args = {y, x, like, rows, n, add, 0};
    if (rows)
        RECORD(d, match_launch, args);
}

void cuda_root_dots(struct device *d, float *y, const float *a, const float *b, uint32_t rows,
                    uint32_t n, float scale)
{
    struct dots_args args = {y, a, b, rows, n, scale, 0};
    if (rows)
        RECORD(d, dots_launch, args);
}

void cuda_blend(struct device *d, float *x, uint32_t rows, uint32_t n, const struct blend *p)
{
    struct blend_args args = {.x = x,
                              .streams = p->rows,
                              .query = p->query,
                              .rows = rows,
                              .n = n,
                              .slots = p->slots,
                              .at = p->at,
                              .kind = p->kind,
                              .eps = p->eps,
                              .raw = p->raw};
    assert(p->slots <= BLEND_MOST && p->at < p->slots + (p->kind == BLEND_READ));
    if (rows)
        RECORD(d, blend_launch, args);
}

void cuda_shorten(struct device *d, float *x, uint32_t stride, uint32_t rows, uint32_t heads,
                  uint32_t n, const float *by, float most)
{
    struct shorten_args args = {x, by, rows, stride, heads, n, most, 0};
    if (rows)
        RECORD(d, shorten_launch, args);
}

void cuda_beside(struct device *d, float *y, const float *a, const float *b, uint32_t rows,
                 uint32_t n)
{
    struct beside_args args = {y, a, b, rows, n};
    if (rows)
        RECORD(d, beside_launch, args);
}

void cuda_softmax(struct device *d, float *x, uint32_t rows, uint32_t n)
{
    struct softmax_args args = {x, rows, n};
    if (rows)
        RECORD(d, softmax_launch, args);
}

void cuda_fourier(struct device *d, float *y, const float *x, uint32_t n)
{
    struct fourier_args args = {.y = y,
                                .x = x,
                                .spans = d->b.spans,
                                .span_of = d->b.span_of,
                                .n = n,
                                .half = n / 2 + 1,
                                .tokens = d->batch->n_tokens};
    RECORD(d, fourier_launch, args);
}

void cuda_merge_attention(struct device *d, float *y, const float *y_sums, const float *x,
                          const float *x_sums, uint32_t rows, uint32_t n)
{
    struct merge_args args = {y, y_sums, x, x_sums, rows, n};
    if (rows)
        RECORD(d, merge_launch, args);
}

void cuda_row_moments(struct device *d, float *y, const float *x, uint32_t stride, uint32_t rows,
                      uint32_t n)
{
    struct moments_args args = {y, x, rows, n, stride, 0};
    if (rows)
        RECORD(d, moments_launch, args);
}

void cuda_sparsify(struct device *d, float *x, uint32_t stride, uint32_t rows, uint32_t n,
                   const struct sparsify *p)
{
    struct sparsify_args args = {.x = x,
                                 .moments = p->moments,
                                 .rows = rows,
                                 .n = n,
                                 .stride = stride,
                                 .of = p->of,
                                 .deviations = p->deviations};
    if (rows)
        RECORD(d, sparsify_launch, args);
}
