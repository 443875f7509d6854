#include "model-server/encoder/conv.h"
#include "model-server/backend/host/cpu_features.h"
#include <math.h>
#include <string.h>

/* Row and column of the input at place (y, x) of a window; false: outside. */
static bool place(struct conv_shape in, const struct conv_window *w, uint32_t row, uint32_t col,
                  uint32_t y, uint32_t x, size_t *at)
{
    const uint32_t r = row * w->stride + y, c = col * w->stride + x;
    if (r < w->above || r - w->above >= in.height || c < w->left || c - w->left >= in.width)
        return false;
    *at = (size_t)(r - w->above) * in.width + c - w->left;
    return true;
}

void conv_gather(float *to, const float *from, struct conv_shape in, struct conv_shape out,
                 const struct conv_window *w, size_t begin, size_t end)
{
    const size_t n = in.channels;
    for (size_t i = begin; i < end; i++) {
        const uint32_t row = (uint32_t)(i / out.width), col = (uint32_t)(i % out.width);
        for (uint32_t y = 0; y < w->size; y++)
            for (uint32_t x = 0; x < w->size; x++, to += n) {
                size_t at;
                if (place(in, w, row, col, y, x, &at))
                    memcpy(to, from + at * n, n * sizeof(*to));
                else
                    memset(to, 0, n * sizeof(*to));
            }
    }
}

void conv_depth(float *to, const float *from, struct conv_shape in, struct conv_shape out,
                const struct conv_window *w, const float *kernel, const float *bias,
                const struct conv_kernels *k, size_t begin, size_t end)
{
    const float *x[CONV_MAX_SIZE * CONV_MAX_SIZE], *by[CONV_MAX_SIZE * CONV_MAX_SIZE];
    const size_t n = in.channels, each = out.channels / n, places = (size_t)w->size * w->size;
    for (size_t i = begin; i < end; i++) {
        const uint32_t row = (uint32_t)(i / out.width), col = (uint32_t)(i % out.width);
        for (size_t part = 0; part < each; part++) {
            uint32_t inside = 0;
            for (uint32_t j = 0; j < places; j++) {
                size_t at;
                if (!place(in, w, row, col, j / w->size, j % w->size, &at))
                    continue;
                x[inside] = from + at * n;
                by[inside++] = kernel + (part * places + j) * n;
            }
            k->sum(to + i * out.channels + part, each, bias + part * n, x, by, inside, in.channels);
        }
    }
}

void conv_mean(float *to, const float *from, struct conv_shape in, struct conv_shape out,
               size_t begin, size_t end)
{
    const size_t side = in.height / out.height, n = in.channels;
    for (size_t i = begin; i < end; i++) {
        const float *first = from + (i / out.width * in.width + i % out.width) * side * n;
        float *mean = to + i * n;
        memset(mean, 0, n * sizeof(*mean));
        for (size_t j = 0; j < side * side; j++) {
            const float *row = first + (j / side * in.width + j % side) * n;
            for (size_t c = 0; c < n; c++)
                mean[c] += row[c];
        }
        for (size_t c = 0; c < n; c++)
            mean[c] /= (float)(side * side);
    }
}

void conv_join(float *to, const float *a, struct conv_shape of_a, const float *b,
               struct conv_shape of_b, size_t begin, size_t end)
{
    const size_t na = of_a.channels, nb = of_b.channels;
    for (size_t i = begin; i < end; i++) {
        const size_t y = i / of_a.width * of_b.height / of_a.height;
        const size_t x = i % of_a.width * of_b.width / of_a.width;
        memcpy(to + i * (na + nb), a + i * na, na * sizeof(*to));
        memcpy(to + i * (na + nb) + na, b + (y * of_b.width + x) * nb, nb * sizeof(*to));
    }
}

void conv_split(float *to, const float *from, struct conv_shape of, uint32_t size, size_t begin,
                size_t end)
{
    const size_t n = of.channels, each = (size_t)size * size;
    const size_t across = (of.width + size - 1) / size;
    for (size_t i = begin; i < end; i++) {
        const size_t y = i / each / across * size + i % each / size;
        const size_t x = i / each % across * size + i % size;
        if (y < of.height && x < of.width)
            memcpy(to + i * n, from + (y * of.width + x) * n, n * sizeof(*to));
        else
            memset(to + i * n, 0, n * sizeof(*to));
    }
}

void conv_merge(float *to, const float *from, struct conv_shape of, uint32_t size, size_t begin,
                size_t end)
{
    const size_t n = of.channels, each = (size_t)size * size;
    const size_t across = (of.width + size - 1) / size;
    for (size_t i = begin; i < end; i++) {
        const size_t y = i / of.width, x = i % of.width;
        const size_t at = (y / size * across + x / size) * each + y % size * size + x % size;
        memcpy(to + i * n, from + at * n, n * sizeof(*to));
    }
}

/* Products of q with the table's entries for the keys 0 .. side - 1. */
static void relate_axis(float *to, const float *q, const float *table, uint32_t side, uint32_t dim,
                        size_t own)
{
    for (size_t key = 0; key < side; key++) {
        const float *entry = table + (own + side - 1 - key) * dim;
        enum { CHAINS = 8 };
        float sum[CHAINS] = {0}, all = 0;
        uint32_t i = 0;
        for (; i + CHAINS <= dim; i += CHAINS)
            for (int k = 0; k < CHAINS; k++)
                sum[k] += q[i + k] * entry[i + k];
        for (int k = 0; k < CHAINS; k++)
            all += sum[k];
        for (; i < dim; i++)
            all += q[i] * entry[i];
        to[key] = all;
    }
}

void conv_relate(float *to, const float *from, const struct conv_relation *r, size_t begin,
                 size_t end)
{
    const size_t dim = r->dim, wide = r->wide, heads = r->heads, side = r->side;
    const size_t row = heads * (2 * wide + dim);
    const float scale = 1 / sqrtf((float)dim);
    for (size_t i = begin; i < end; i++) {
        const size_t y = i % (side * side) / side, x = i % side;
        const float *q = from + i * 3 * heads * dim, *k = q + heads * dim, *v = k + heads * dim;
        float *out = to + i * row;
        memset(out, 0, row * sizeof(*out));
        for (size_t h = 0; h < heads; h++, q += dim, k += dim) {
            float *own = out + h * wide, *key = out + (heads + h) * wide;
            for (size_t c = 0; c < dim; c++)
                own[c] = q[c] * scale;
            relate_axis(own + dim, q, r->rows, r->side, r->dim, y);
            relate_axis(own + dim + side, q, r->columns, r->side, r->dim, x);
            memcpy(key, k, dim * sizeof(*key));
            key[dim + y] = key[dim + side + x] = 1;
        }
        memcpy(out + 2 * heads * wide, v, heads * dim * sizeof(*out));
    }
}

CONV_SUM(conv_sum_ref)
{
    for (uint32_t c = 0; c < channels; c++) {
        float sum = bias[c];
        for (uint32_t j = 0; j < n; j++)
            sum = fmaf(x[j][c], k[j][c], sum);
        to[c * step] = sum;
    }
}

void conv_kernels_init(struct conv_kernels *k, unsigned features)
{
    k->sum = conv_sum_ref;
#if defined(__x86_64__)
    if (features & CPU_AVX2)
        k->sum = conv_sum_avx2;
    if (features & CPU_AVX512)
        k->sum = conv_sum_avx512;
#else
    (void)features;
#endif
}
