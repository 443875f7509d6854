/* scaled.c - rows of a matrix or a bias times the numbers of a vector; vectors times a
 * number. */
#include "model-server/backend/numbers.h"
#include "model-server/model/loader/loader.h"
#include <assert.h>
#include <stdlib.h>

/* A copy of `p` in fp32, with row r multiplied by element r of the vector `scale`; the caller
 * frees its data. */
static struct mat_part scaled(struct loader *l, struct mat_part p, enum role scale, int layer)
{
    struct mat_part by = loader_table(l, scale, layer, "", p.rows, 1);
    assert(l->failed || p.rows * p.cols > 0);
    float *out = l->failed ? NULL : malloc((size_t)(p.rows * p.cols) * sizeof(*out));
    if (!out) {
        if (!l->failed)
            loader_nomem(l);
        return (struct mat_part){0};
    }
    assert(by.data && p.data); /* it has not failed */
    for (int64_t r = 0, at = 0; r < p.rows; r++)
        for (int64_t c = 0; c < p.cols; c++)
            out[at++] = number_at(by.data, by.dtype, r) *
                        number_at(p.data, p.dtype, r * p.row_stride + c * p.col_stride);
    return (struct mat_part){.data = out,
                             .dtype = DT_F32,
                             .rows = p.rows,
                             .cols = p.cols,
                             .row_stride = p.cols,
                             .col_stride = 1};
}

struct weight *loader_pack_scaled(struct loader *l, struct mat_part p, enum role scale, int layer,
                                  enum quant quant)
{
    if (!l->c) /* random numbers have the right magnitude already */
        return loader_pack(l, &p, 1, DT_F32, quant);
    loader_numbers(l, &p);
    p = scaled(l, p, scale, layer);
    void *copy = (void *)(uintptr_t)p.data;
    struct weight *w = loader_pack(l, &p, 1, DT_F32, quant);
    free(copy);
    return w;
}

float *loader_scaled_bias(struct loader *l, enum role role, enum role scale, int layer, uint32_t n)
{
    struct mat_part p = loader_part(l, role, layer, NO_EXPERT, true, n, 1);
    p = scaled(l, p, scale, layer);
    void *copy = (void *)(uintptr_t)p.data;
    float *v = loader_vector(l, &p, 1, 0);
    free(copy);
    return v;
}

float *loader_factors(struct loader *l, enum role role, int layer, uint32_t n, struct slice s,
                      float by, bool squared)
{
    const struct mat_part p = loader_table(l, role, layer, "", n, 1);
    float *host = malloc((s.n ? s.n : 1) * sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return NULL;
    }
    for (uint32_t i = 0; i < s.n; i++) {
        host[i] = p.data ? by * number_at(p.data, p.dtype, s.first + i) : 1;
        host[i] *= squared ? host[i] : 1;
    }
    loader_drop(l);
    float *v = loader_host_vector(l, host, s.n);
    free(host);
    return v;
}
