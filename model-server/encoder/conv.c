#include "model-server/encoder/conv.h"
#include "model-server/encoder/resample_kernels.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static uint32_t pad_of(uint32_t n, uint32_t out, uint32_t size, uint32_t stride)
{
    const uint32_t reach = (out - 1) * stride + size;
    return reach > n ? reach - n : 0;
}

struct conv_window conv_over(struct conv_shape in, uint32_t size, uint32_t stride, bool same,
                             struct conv_shape *out)
{
    const uint32_t half = size / 2;
    struct conv_window w = {size, stride, half, half};
    assert(in.height && in.width && size && size <= CONV_MAX_SIZE && stride);
    /* a window of an odd size is never larger than the padded grid */
    out->height =
        same ? (in.height + stride - 1) / stride : (in.height + 2 * half - size) / stride + 1;
    out->width =
        same ? (in.width + stride - 1) / stride : (in.width + 2 * half - size) / stride + 1;
    if (same) {
        w.above = pad_of(in.height, out->height, size, stride) / 2;
        w.left = pad_of(in.width, out->width, size, stride) / 2;
    }
    return w;
}

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
    if (features & RESAMPLE_AVX2)
        k->sum = conv_sum_avx2;
    if (features & RESAMPLE_AVX512)
        k->sum = conv_sum_avx512;
#else
    (void)features;
#endif
}
