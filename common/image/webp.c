/* WebP with libwebp: the image, or the first frame of an animation on an empty canvas. */
#include "common/image/canvas.h"
#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>

/* Pixels of the whole canvas, [height][width][channels]. Without alpha the canvas around a smaller
 * frame is black, as in Pillow; with alpha it is transparent. */
static int decode_frame(const WebPIterator *frame, const struct canvas *c, size_t channels,
                        uint8_t *pixels, struct err *e)
{
    WebPDecoderConfig config;
    const size_t stride = (size_t)c->width * channels;
    const size_t at = (size_t)frame->y_offset * stride + (size_t)frame->x_offset * channels;
    if (!WebPInitDecoderConfig(&config))
        return err_set(e, ERR_SYSTEM, "libwebp has another version than its headers");
    config.output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = (WebPRGBABuffer){
        .rgba = pixels + at, .stride = (int)stride, .size = stride * c->height - at};
    const VP8StatusCode status = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
    if (status == VP8_STATUS_OUT_OF_MEMORY)
        return err_nomem(e);
    if (status != VP8_STATUS_OK || config.input.width != frame->width ||
        config.input.height != frame->height)
        return image_broken(IMAGE_WEBP, e);
    return 0;
}

static bool frame_fits(const WebPIterator *f, const struct canvas *c)
{
    WebPBitstreamFeatures own;
    return f->complete && f->width > 0 && f->height > 0 && f->x_offset >= 0 && f->y_offset >= 0 &&
           (uint32_t)f->x_offset <= c->width && (uint32_t)f->y_offset <= c->height &&
           (uint32_t)f->width <= c->width - (uint32_t)f->x_offset &&
           (uint32_t)f->height <= c->height - (uint32_t)f->y_offset &&
           WebPGetFeatures(f->fragment.bytes, f->fragment.size, &own) == VP8_STATUS_OK &&
           own.width == f->width && own.height == f->height;
}

static int decode_canvas(const WebPIterator *frame, bool alpha, const struct canvas *c,
                         struct err *e)
{
    const size_t channels = alpha ? 4 : 3;
    const bool whole = (uint32_t)frame->width == c->width && (uint32_t)frame->height == c->height;
    const bool in_place = whole && !alpha && canvas_row(c, 0);
    uint8_t *pixels = in_place ? c->rgb : calloc((size_t)c->width * c->height, channels);
    uint8_t *row = malloc((size_t)c->width * 3);
    int rc = pixels && row ? decode_frame(frame, c, channels, pixels, e) : err_nomem(e);
    for (uint32_t y = 0; rc == 0 && !in_place && y < c->height; y++) {
        const uint8_t *from = pixels + (size_t)y * c->width * channels;
        if (alpha)
            rgb_from_rgba(row, from, c->width);
        canvas_put(c, y, alpha ? row : from);
    }
    free(row);
    if (!in_place)
        free(pixels);
    return rc;
}

int webp_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e)
{
    const WebPData data = {bytes, n};
    WebPBitstreamFeatures file;
    WebPIterator frame;
    WebPDemuxer *demux = NULL;
    int rc = -1;
    if (WebPGetFeatures(bytes, n, &file) != VP8_STATUS_OK || !(demux = WebPDemux(&data)))
        return image_broken(IMAGE_WEBP, e);
    if (WebPDemuxGetI(demux, WEBP_FF_CANVAS_WIDTH) == c->width &&
        WebPDemuxGetI(demux, WEBP_FF_CANVAS_HEIGHT) == c->height &&
        WebPDemuxGetFrame(demux, 1, &frame)) {
        rc = frame_fits(&frame, c) ? decode_canvas(&frame, file.has_alpha, c, e)
                                   : image_broken(IMAGE_WEBP, e);
        WebPDemuxReleaseIterator(&frame);
    } else {
        image_broken(IMAGE_WEBP, e);
    }
    WebPDemuxDelete(demux);
    return rc;
}
