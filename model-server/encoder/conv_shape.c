#include "model-server/encoder/conv_shape.h"
#include <assert.h>

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

struct conv_shape conv_windows(struct conv_shape of, uint32_t size)
{
    const uint32_t down = (of.height + size - 1) / size, across = (of.width + size - 1) / size;
    return (struct conv_shape){down * across, size * size, of.channels};
}
