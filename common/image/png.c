/* PNG with libpng's low-level interface: no gamma, no colour profiles, as in Pillow. */
#include "common/image/canvas.h"
#include <png.h>
#include <stdlib.h>
#include <string.h>

struct png_source {
    const uint8_t *p;
    size_t left;
};

/* Resources to free after a longjmp, in memory, not in registers. */
struct png_reader {
    png_structp png;
    png_infop info;
    struct png_source source;
    struct palette palette;
    uint8_t *stored; /* one row, or the whole interlaced image */
    uint8_t *rgb;    /* one row */
    bool nomem;
};

static void on_read(png_structp png, png_bytep to, size_t n)
{
    struct png_source *s = png_get_io_ptr(png);
    if (n > s->left)
        png_error(png, "end of file");
    memcpy(to, s->p, n);
    s->p += n;
    s->left -= n;
}

static void on_error(png_structp png, png_const_charp message)
{
    (void)message;
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

/* libpng expands samples. Palette colours are blended once each, before look-up. */
static void set_transforms(struct png_reader *r)
{
    const int type = png_get_color_type(r->png, r->info);
    const bool key = png_get_valid(r->png, r->info, PNG_INFO_tRNS);
    png_set_strip_16(r->png);
    if (type == PNG_COLOR_TYPE_PALETTE) {
        png_set_packing(r->png);
        return;
    }
    if (type == PNG_COLOR_TYPE_GRAY)
        png_set_expand_gray_1_2_4_to_8(r->png);
    if (key)
        png_set_tRNS_to_alpha(r->png);
}

static void read_palette(struct png_reader *r)
{
    png_colorp colours = NULL;
    png_bytep alpha = NULL;
    int n = 0, n_alpha = 0;
    if (png_get_PLTE(r->png, r->info, &colours, &n) != PNG_INFO_PLTE)
        return;
    for (int i = 0; i < n; i++)
        palette_set(&r->palette, (unsigned)i, colours[i].red, colours[i].green, colours[i].blue);
    png_get_tRNS(r->png, r->info, &alpha, &n_alpha, NULL);
    for (int i = 0; alpha && i < n_alpha; i++)
        palette_blend(&r->palette, (unsigned)i, alpha[i]);
}

static void put_row(struct png_reader *r, const struct canvas *c, uint32_t y, const uint8_t *row)
{
    uint8_t *in_place = canvas_row(c, y), *to = in_place ? in_place : r->rgb;
    switch (png_get_channels(r->png, r->info)) {
    case 1:
        if (png_get_color_type(r->png, r->info) == PNG_COLOR_TYPE_PALETTE)
            rgb_from_palette(to, row, c->width, &r->palette);
        else
            rgb_from_grey(to, row, c->width);
        break;
    case 2:
        rgb_from_grey_alpha(to, row, c->width);
        break;
    case 3:
        canvas_put(c, y, row);
        return;
    default:
        rgb_from_rgba(to, row, c->width);
    }
    canvas_put(c, y, to);
}

static void allocate(struct png_reader *r, const struct canvas *c, size_t row_bytes, size_t rows)
{
    r->stored = malloc(row_bytes * rows);
    r->rgb = malloc((size_t)c->width * 3);
    r->nomem = !r->stored || !r->rgb;
    if (r->nomem)
        png_error(r->png, "no memory");
}

/* Errors in here longjmp to png_file_decode(). */
static void read_picture(struct png_reader *r, const struct canvas *c)
{
    png_set_read_fn(r->png, &r->source, on_read);
    png_set_user_limits(r->png, c->width, c->height);
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* all except tRNS */
    png_read_info(r->png, r->info);
    if (png_get_image_width(r->png, r->info) != c->width ||
        png_get_image_height(r->png, r->info) != c->height)
        png_error(r->png, "another size");
    set_transforms(r);
    read_palette(r);
    const int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    const size_t row_bytes = png_get_rowbytes(r->png, r->info);
    allocate(r, c, row_bytes, passes > 1 ? c->height : 1);
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t y = 0; y < c->height; y++) {
            uint8_t *row = r->stored + (passes > 1 ? y * row_bytes : 0);
            png_read_row(r->png, row, NULL);
            if (pass == passes - 1)
                put_row(r, c, y, row);
        }
    png_read_end(r->png, NULL); /* verifies the checksum of the last block */
}

int png_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e)
{
    struct png_reader *r = calloc(1, sizeof(*r));
    volatile bool whole = false;
    if (!r)
        return err_nomem(e);
    r->source = (struct png_source){bytes, n};
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, on_error, on_warning);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    r->nomem = !r->info;
    if (r->info && !setjmp(png_jmpbuf(r->png))) {
        read_picture(r, c);
        whole = true;
    }
    const bool nomem = r->nomem;
    png_destroy_read_struct(&r->png, &r->info, NULL);
    free(r->stored);
    free(r->rgb);
    free(r);
    return whole ? 0 : nomem ? err_nomem(e) : image_broken(IMAGE_PNG, e);
}
