/* GIF animations with giflib. Transparent places are white, as a canvas of RGB has no alpha. What a
 * frame leaves behind (disposal) is as in Pillow: its place becomes transparent, or has the colour
 * of its palette that is the background's. Unlike there, a frame that says nothing leaves all. */
#include "common/image/film.h"
#include "common/image/gif_impl.h"
#include <stdlib.h>
#include <string.h>

/* The part of a frame on the canvas. */
struct part {
    uint32_t x, y, width, height;
};

struct gif_film {
    GifFileType *gif;
    const struct image_info *info;
    uint8_t *canvas, *before; /* [height][width][3]; before the last frame, for its part alone */
    uint8_t *line;            /* colours of a line of a frame */
    struct gif_control last;  /* of the frame before */
    struct palette colours;   /* likewise */
    struct part part;         /* its place */
    bool any;
};

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static struct part part_of(const struct gif_film *f)
{
    const GifImageDesc *d = &f->gif->Image;
    const uint32_t w = f->info->width, h = f->info->height;
    const uint32_t x = least((uint32_t)d->Left, w), y = least((uint32_t)d->Top, h);
    return (struct part){x, y, least((uint32_t)d->Width, w - x), least((uint32_t)d->Height, h - y)};
}

/* Sets n pixels. */
static void fill(uint8_t *rgb, size_t n, const uint8_t colour[3])
{
    for (size_t i = 0; i < n; i++)
        memcpy(rgb + 3 * i, colour, 3);
}

/* What the frame before leaves behind. */
static void dispose(struct gif_film *f)
{
    const struct part *p = &f->part;
    const int at =
        f->last.transparent == GIF_OPAQUE ? f->gif->SBackGroundColor & 255 : f->last.transparent;
    for (uint32_t y = p->y; y < p->y + p->height; y++) {
        const size_t row = 3 * ((size_t)y * f->info->width + p->x);
        if (f->last.disposal == DISPOSE_BACKGROUND)
            fill(f->canvas + row, p->width, f->colours.rgb[at]);
        else if (f->last.disposal == DISPOSE_PREVIOUS)
            memcpy(f->canvas + row, f->before + row, 3 * (size_t)p->width);
    }
}

static void keep(struct gif_film *f)
{
    const struct part *p = &f->part;
    for (uint32_t y = p->y; y < p->y + p->height; y++) {
        const size_t at = 3 * ((size_t)y * f->info->width + p->x);
        memcpy(f->before + at, f->canvas + at, 3 * (size_t)p->width);
    }
}

static int draw(struct gif_film *f, const struct gif_control *c, const struct palette *colours,
                struct err *e)
{
    const GifImageDesc *d = &f->gif->Image;
    const struct part *p = &f->part;
    for (uint32_t i = 0; i < (uint32_t)d->Height; i++) {
        const uint32_t y = d->Interlace ? gif_interlaced_row(i, (uint32_t)d->Height) : i;
        if (DGifGetLine(f->gif, f->line, d->Width) != GIF_OK)
            return image_broken(IMAGE_GIF, e);
        if (y >= p->height)
            continue;
        uint8_t *to = f->canvas + 3 * ((size_t)(p->y + y) * f->info->width + p->x);
        for (uint32_t x = 0; x < p->width; x++)
            if (f->line[x] != c->transparent)
                memcpy(to + 3 * (size_t)x, colours->rgb[f->line[x]], 3);
    }
    return 0;
}

/* The next frame over what was there. 1: drawn, 0: the end, -1: an error. */
static int step(struct gif_film *f, struct err *e)
{
    struct gif_control control = {.transparent = GIF_OPAQUE};
    struct palette colours;
    const int found = gif_next_frame(f->gif, &control);
    if (found < 0)
        return image_broken(IMAGE_GIF, e);
    if (!found || f->gif->Image.Width <= 0 || f->gif->Image.Height <= 0)
        return found ? image_broken(IMAGE_GIF, e) : 0;
    gif_palette(f->gif, control.transparent, &colours);
    if (f->any)
        dispose(f);
    else /* around the first frame: transparent, or colour 0 */
        fill(f->canvas, (size_t)f->info->width * f->info->height,
             colours.rgb[control.transparent == GIF_OPAQUE ? 0 : control.transparent]);
    f->part = part_of(f);
    f->colours = colours;
    f->last = control;
    if (!f->any && control.transparent == GIF_OPAQUE && control.disposal == DISPOSE_PREVIOUS)
        f->last.disposal = 0; /* nothing was there, not even transparency: as in Pillow, it stays */
    f->any = true;
    if (control.disposal == DISPOSE_PREVIOUS)
        keep(f);
    return draw(f, &control, &colours, e) ? -1 : 1;
}

static int play(struct gif_film *f, uint8_t *rgb, struct err *e)
{
    const struct image_times *t = &f->info->times;
    const size_t each = (size_t)f->info->width * f->info->height * 3;
    uint64_t ms = 0;
    uint32_t next = 0;
    while (next < t->frames) {
        const int rc = step(f, e);
        if (rc < 0 || (rc == 0 && !f->any))
            return rc < 0 ? -1 : image_broken(IMAGE_GIF, e);
        ms += film_delay(10ULL * (unsigned)f->last.delay);
        while (rc ? film_due(t, next, (double)ms) : next < t->frames)
            memcpy(rgb + each * next++, f->canvas, each);
    }
    return 0;
}

int gif_film_decode(const uint8_t *bytes, size_t n, const struct image_info *info, uint8_t *rgb,
                    struct err *e)
{
    struct gif_source source = {bytes, n};
    const size_t each = (size_t)info->width * info->height * 3;
    struct gif_film f = {.info = info, .gif = gif_open(&source, e)};
    if (!f.gif)
        return -1;
    f.canvas = malloc(each);
    f.before = malloc(each);
    f.line = malloc(UINT16_MAX);
    const int rc = f.canvas && f.before && f.line ? play(&f, rgb, e) : err_nomem(e);
    free(f.canvas);
    free(f.before);
    free(f.line);
    DGifCloseFile(f.gif, NULL);
    return rc;
}
