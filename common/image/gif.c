/* GIF with giflib: the first frame. Around a frame smaller than the canvas is the transparent
 * colour, or colour 0. The background colour in the header is ignored, as in Pillow. */
#include "common/image/gif_impl.h"
#include <stdlib.h>
#include <string.h>

enum { TRANSPARENT_FLAG = 1, CONTROL_BYTES = 4 };

static int on_read(GifFileType *gif, GifByteType *to, int n)
{
    struct gif_source *s = gif->UserData;
    const size_t take = (size_t)n < s->left ? (size_t)n : s->left;
    memcpy(to, s->p, take);
    s->p += take;
    s->left -= take;
    return (int)take;
}

GifFileType *gif_open(struct gif_source *s, struct err *e)
{
    int code = 0;
    GifFileType *gif = DGifOpen(s, on_read, &code);
    if (!gif && code == D_GIF_ERR_NOT_ENOUGH_MEM)
        err_nomem(e);
    else if (!gif)
        image_broken(IMAGE_GIF, e);
    return gif;
}

/* An extension block; a graphics control block is read into *c. */
static int read_extension(GifFileType *gif, struct gif_control *c)
{
    GifByteType *block = NULL;
    int code = 0;
    if (DGifGetExtension(gif, &code, &block) != GIF_OK)
        return -1;
    if (code == GRAPHICS_EXT_FUNC_CODE && block && block[0] >= CONTROL_BYTES) {
        if (block[1] & TRANSPARENT_FLAG)
            c->transparent = block[4];
        c->disposal = block[1] >> 2 & 7;
        c->delay = block[2] | block[3] << 8;
    }
    while (block)
        if (DGifGetExtensionNext(gif, &block) != GIF_OK)
            return -1;
    return 0;
}

int gif_next_frame(GifFileType *gif, struct gif_control *control)
{
    GifRecordType type;
    for (;;) {
        if (DGifGetRecordType(gif, &type) != GIF_OK)
            return -1;
        if (type == IMAGE_DESC_RECORD_TYPE)
            return DGifGetImageDesc(gif) == GIF_OK ? 1 : -1;
        if (type == TERMINATE_RECORD_TYPE)
            return 0;
        if (type != EXTENSION_RECORD_TYPE || read_extension(gif, control))
            return -1;
    }
}

void gif_palette(const GifFileType *gif, int transparent, struct palette *p)
{
    const ColorMapObject *map = gif->Image.ColorMap ? gif->Image.ColorMap : gif->SColorMap;
    *p = (struct palette){0};
    if (!map)
        palette_grey(p);
    for (int i = 0; map && i < map->ColorCount && i < 256; i++)
        palette_set(p, (unsigned)i, map->Colors[i].Red, map->Colors[i].Green, map->Colors[i].Blue);
    if (transparent != GIF_OPAQUE)
        palette_blend(p, (unsigned)transparent, 0);
}

uint32_t gif_interlaced_row(uint32_t i, uint32_t height)
{
    static const uint32_t first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    for (int pass = 0; pass < 4; pass++) {
        const uint32_t rows =
            height > first[pass] ? (height - first[pass] + step[pass] - 1) / step[pass] : 0;
        if (i < rows)
            return first[pass] + i * step[pass];
        i -= rows;
    }
    return 0;
}

static bool frame_fits(const GifFileType *gif, const struct canvas *c)
{
    const GifImageDesc *f = &gif->Image;
    const uint64_t right = (uint64_t)f->Left + (uint64_t)f->Width;
    const uint64_t below = (uint64_t)f->Top + (uint64_t)f->Height;
    const uint64_t width = right > (uint64_t)gif->SWidth ? right : (uint64_t)gif->SWidth;
    const uint64_t height = below > (uint64_t)gif->SHeight ? below : (uint64_t)gif->SHeight;
    return width == c->width && height == c->height && f->Width > 0 && f->Height > 0;
}

/* `index`: a row of the canvas; `rgb`: the same in colours. */
static int draw(GifFileType *gif, const struct canvas *c, const struct palette *p, int transparent,
                uint8_t *index, uint8_t *rgb, struct err *e)
{
    const GifImageDesc *f = &gif->Image;
    const uint32_t top = (uint32_t)f->Top, height = (uint32_t)f->Height;
    memset(index, transparent == GIF_OPAQUE ? 0 : transparent, c->width);
    rgb_from_palette(rgb, index, c->width, p);
    for (uint32_t y = 0; y < c->height; y++)
        if (y < top || y >= top + height)
            canvas_put(c, y, rgb);
    for (uint32_t i = 0; i < height; i++) {
        if (DGifGetLine(gif, index + f->Left, f->Width) != GIF_OK)
            return image_broken(IMAGE_GIF, e);
        rgb_from_palette(rgb, index, c->width, p);
        canvas_put(c, top + (f->Interlace ? gif_interlaced_row(i, height) : i), rgb);
    }
    return 0;
}

int gif_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e)
{
    struct gif_source source = {bytes, n};
    struct gif_control control = {.transparent = GIF_OPAQUE};
    struct palette palette;
    int rc = -1;
    GifFileType *gif = gif_open(&source, e);
    if (!gif)
        return -1;
    if (gif_next_frame(gif, &control) == 1 && frame_fits(gif, c)) {
        uint8_t *index = malloc(c->width), *rgb = malloc((size_t)c->width * 3);
        gif_palette(gif, control.transparent, &palette);
        rc = index && rgb ? draw(gif, c, &palette, control.transparent, index, rgb, e)
                          : err_nomem(e);
        free(index);
        free(rgb);
    } else {
        image_broken(IMAGE_GIF, e);
    }
    DGifCloseFile(gif, NULL);
    return rc;
}
