#include "model-server/model/mixer/apart.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/decoder.h"
#include <math.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- buckets */

/* Bucket of a query `far` positions after the key; fp32, where transformers rounds. */
static uint32_t bucket(const struct apart_spec *s, int32_t far)
{
    const int32_t span = (int32_t)s->buckets / 2, mid = span / 2;
    const int32_t size = far < 0 ? -far : far;
    int32_t b = size;
    if (!s->each && size > mid) {
        const float most = logf((float)((s->most - 1) / (double)mid));
        b = (int32_t)ceilf(logf((float)size / (float)mid) / most * (float)(mid - 1)) + mid;
    }
    b = span + (far < 0 ? -b : b);
    return (uint32_t)(b < 0 ? 0 : b > 2 * span - 1 ? 2 * span - 1 : b);
}

static void load_at(struct loader *l, struct apart *a)
{
    const struct apart_spec *s = &l->d->spec.apart;
    const size_t n = 2 * (size_t)s->most + 1;
    uint32_t *at = malloc(n * sizeof(*at));
    if (!at) {
        loader_nomem(l);
        return;
    }
    for (size_t i = 0; i < n; i++)
        at[i] = bucket(s, (int32_t)i - (int32_t)s->most);
    a->at = loader_host_numbers(l, at, n);
    free(at);
}

/* ---------------------------------------------------------------- vectors */

/* Vectors [hidden][n] become their norms. */
static void normalise(struct loader *l, float *turned, uint32_t n)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t hidden = s->hidden;
    const struct mat_part w = loader_table(l, W_APART_NORM, NO_LAYER, ".weight", hidden, 1);
    const struct mat_part b = loader_table(l, W_APART_NORM, NO_LAYER, ".bias", hidden, 1);
    for (uint32_t i = 0; !l->failed && i < n; i++) {
        double mean = 0, square = 0;
        for (uint32_t k = 0; k < hidden; k++)
            mean += turned[(size_t)k * n + i];
        mean /= hidden;
        for (uint32_t k = 0; k < hidden; k++) {
            const double x = turned[(size_t)k * n + i] - mean;
            square += x * x;
        }
        const double scale = 1 / sqrt(square / hidden + (double)s->norm.eps);
        for (uint32_t k = 0; k < hidden; k++) {
            float *x = &turned[(size_t)k * n + i];
            *x = (float)((*x - mean) * scale) * number_at(w.data, w.dtype, k) +
                 number_at(b.data, b.dtype, k);
        }
    }
}

/* The vectors of distances, or their norms, transposed: [hidden][buckets]. NULL after an error. */
static float *distances(struct loader *l)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->apart.buckets, hidden = s->hidden;
    const struct mat_part e = loader_table(l, W_APART, NO_LAYER, ".weight", n, hidden);
    float *turned = calloc((size_t)n * hidden, sizeof(*turned));
    if (!turned)
        loader_nomem(l);
    for (uint32_t i = 0; turned && !l->failed && i < n; i++)
        for (uint32_t k = 0; k < hidden; k++)
            turned[(size_t)k * n + i] = number_at(e.data, e.dtype, (int64_t)i * hidden + k);
    if (turned && !s->apart.own)
        normalise(l, turned, n);
    loader_drop(l);
    if (!l->failed)
        return turned;
    free(turned);
    return NULL;
}

/* out [buckets][dim]: products of the vectors with rows [first, first + dim) of a matrix, plus
 * its bias unless that has no data. */
static void project(const struct mat_part *w, const struct mat_part *b, uint32_t first,
                    uint32_t dim, const float *turned, uint32_t n, float *sums, float *out)
{
    for (uint32_t r = 0; r < dim; r++) {
        for (uint32_t i = 0; i < n; i++)
            sums[i] = b->data ? number_at(b->data, b->dtype, first + r) : 0;
        for (int64_t k = 0; k < w->cols; k++) {
            const float f = number_at(w->data, w->dtype, (first + r) * w->row_stride + k);
            const float *x = turned + k * n;
            for (uint32_t i = 0; i < n; i++)
                sums[i] += f * x[i];
        }
        for (uint32_t i = 0; i < n; i++)
            out[(size_t)i * dim + r] = sums[i];
    }
}

/* For this rank's heads: the factor of q comes from the keys' matrix, and vice versa. */
static void load_side(struct loader *l, uint32_t layer, enum role role, const float *turned,
                      struct weight **of)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = l->d->split.heads;
    const uint32_t dim = s->head_dim, n = s->apart.buckets;
    float *out = malloc(((size_t)dim + 1) * n * sizeof(*out)),
          *sums = out ? out + (size_t)dim * n : NULL;
    struct mat_part w =
        loader_part(l, role, (int)layer, NO_EXPERT, false, (int64_t)s->n_heads * dim, s->hidden);
    struct mat_part b = {0};
    if (role != W_APART_K)
        b = loader_part(l, role, (int)layer, NO_EXPERT, true, (int64_t)s->n_heads * dim, 1);
    loader_numbers(l, &w);
    if (!out)
        loader_nomem(l);
    l->hold = true;
    for (uint32_t i = 0; out && i < h.n && !l->failed; i++) {
        struct mat_part p = {.data = out,
                             .dtype = DT_F32,
                             .rows = n,
                             .cols = dim,
                             .row_stride = dim,
                             .col_stride = 1};
        project(&w, &b, (h.first + i) * dim, dim, turned, n, sums, out);
        of[i] = loader_pack(l, &p, 1, DT_F32, QUANT_NONE);
    }
    l->hold = false;
    loader_drop(l);
    free(out);
}

struct apart *apart_load(struct loader *l, uint32_t layer)
{
    const uint32_t heads = l->d->split.heads.n;
    const bool own = l->d->spec.apart.own;
    struct apart *a = calloc(1, sizeof(*a));
    if (!a || !(a->of = calloc(3 * (size_t)heads, sizeof(struct weight *)))) {
        loader_nomem(l);
        return a;
    }
    a->heads = heads;
    load_at(l, a);
    float *turned = distances(l);
    if (turned) {
        load_side(l, layer, own ? W_APART_K : W_K, turned, a->of);
        load_side(l, layer, own ? W_APART_Q : W_Q, turned, a->of + heads);
    }
    for (uint32_t i = 0; i < heads; i++)
        a->of[2 * heads + i] = a->of[i];
    free(turned);
    return a;
}

void apart_free(struct decoder *d, struct apart *a)
{
    if (!a)
        return;
    for (uint32_t i = 0; i < 2 * a->heads; i++)
        layer_free_weight(d, a->of[i]);
    d->ops->free(d->dev, a->at);
    free(a->of);
    free(a);
}

uint32_t apart_width(const struct decoder *d)
{
    return 3 * d->split.heads.n * d->spec.apart.buckets;
}

void apart_tables(struct decoder *d, const struct apart *a, float *y, const float *qkv,
                  uint32_t rows)
{
    d->ops->linear_heads(d->dev, y, qkv, rows, a->of, 3 * a->heads);
}
