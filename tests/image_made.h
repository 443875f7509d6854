/* image_made.h - small image files for tests, written by the libraries' own encoders. */
#ifndef TESTS_IMAGE_MADE_H
#define TESTS_IMAGE_MADE_H
#include "common/buf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

/* A TIFF block with only an orientation. */
static inline size_t made_exif(uint8_t out[26], unsigned orientation, bool big)
{
    static const uint8_t little_tiff[26] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3,
                                            0,   1,   0,  0, 0, 0, 0, 0, 0, 0, 0,    0, 0};
    static const uint8_t big_tiff[26] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0,
                                         3,   0,   0, 0,  1, 0, 0, 0, 0, 0, 0, 0,    0};
    memcpy(out, big ? big_tiff : little_tiff, 26);
    out[big ? 19 : 18] = (uint8_t)orientation;
    return 26;
}

struct made_png {
    uint32_t width, height;
    int colour, depth; /* libpng's */
    bool interlaced;
    unsigned orientation; /* 0: no eXIf */
    const png_color *palette;
    int n_palette;
    const png_byte *alpha; /* of the palette */
    int n_alpha;
    const png_color_16 *key; /* the transparent colour */
};

static inline void made_write(png_structp png, png_bytep p, size_t n)
{
    buf_add(png_get_io_ptr(png), p, n);
}

/* `rows`: [height][bytes of a row], packed as PNG packs them. */
static inline void made_png(struct buf *out, const struct made_png *m, const uint8_t *rows)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    uint8_t exif[26];
    png_set_write_fn(png, out, made_write, NULL);
    png_set_IHDR(png, info, m->width, m->height, m->depth, m->colour,
                 m->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    if (m->palette)
        png_set_PLTE(png, info, m->palette, m->n_palette);
    if (m->alpha || m->key)
        png_set_tRNS(png, info, m->alpha, m->n_alpha, m->key);
    if (m->orientation)
        png_set_eXIf_1(png, info, (png_uint_32)made_exif(exif, m->orientation, true), exif);
    png_write_info(png, info);
    const size_t row_bytes = png_get_rowbytes(png, info);
    const int passes = m->interlaced ? png_set_interlace_handling(png) : 1;
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t y = 0; y < m->height; y++)
            png_write_row(png, rows + y * row_bytes);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
}

/* `pixels`: [height][width][components]; 4 components are inks, inverted as Adobe does. */
static inline void made_jpeg(struct buf *out, uint32_t width, uint32_t height, int components,
                             const uint8_t *pixels, unsigned orientation)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long n = 0;
    uint8_t exif[32] = "Exif\0";
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &bytes, &n);
    jpeg.image_width = width;
    jpeg.image_height = height;
    jpeg.input_components = components;
    jpeg.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    if (orientation)
        jpeg_write_marker(&jpeg, JPEG_APP0 + 1, exif,
                          6 + (unsigned)made_exif(exif + 6, orientation, false));
    while (jpeg.next_scanline < height) {
        JSAMPROW row = (JSAMPROW)pixels + (size_t)jpeg.next_scanline * width * (size_t)components;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    buf_add(out, bytes, n);
    jpeg_destroy_compress(&jpeg);
    free(bytes);
}

/* Lossless. `rgba`: [height][width][4]; wholly transparent pixels lose their colour. */
static inline void made_webp(struct buf *out, uint32_t width, uint32_t height, const uint8_t *rgba)
{
    uint8_t *bytes = NULL;
    const size_t n = WebPEncodeLosslessRGBA(rgba, (int)width, (int)height, (int)width * 4, &bytes);
    buf_add(out, bytes, n);
    WebPFree(bytes);
}

struct made_gif {
    uint16_t width, height;
    uint16_t left, top, frame_width, frame_height;
    bool interlaced;
    int transparent;       /* -1: none */
    const uint8_t *global; /* 4 colours; NULL: none */
    const uint8_t *local;
};

static inline void made_u16(struct buf *out, unsigned v)
{
    buf_ch(out, (char)v);
    buf_ch(out, (char)(v >> 8));
}

/* `index`: [frame_height][frame_width] below 4, in the order of the file. Codes of three bits: a
 * clear code comes before the table would widen them. */
static inline void made_gif(struct buf *out, const struct made_gif *m, const uint8_t *index)
{
    const size_t n = (size_t)m->frame_width * m->frame_height;
    struct buf codes = BUF_INIT;
    unsigned bits = 0, held = 0;
    buf_str(out, "GIF89a");
    made_u16(out, m->width);
    made_u16(out, m->height);
    buf_add(out, m->global ? "\x81\0\0" : "\x01\0\0", 3);
    if (m->global)
        buf_add(out, m->global, 12);
    if (m->transparent >= 0) {
        buf_add(out, "!\xf9\4\1\0\0", 6);
        buf_ch(out, (char)m->transparent);
        buf_ch(out, 0);
    }
    buf_ch(out, ',');
    made_u16(out, m->left);
    made_u16(out, m->top);
    made_u16(out, m->frame_width);
    made_u16(out, m->frame_height);
    buf_ch(out, (char)((m->local ? 0x81 : 0) | (m->interlaced ? 0x40 : 0)));
    if (m->local)
        buf_add(out, m->local, 12);
    for (size_t i = 0; i <= n; i++)
        for (int clear = i < n && i % 2 == 0; clear >= 0; clear--) {
            const unsigned code = clear ? 4 : i < n ? index[i] : 5;
            bits |= code << held;
            for (held += 3; held >= 8; held -= 8, bits >>= 8)
                buf_ch(&codes, (char)bits);
        }
    buf_ch(&codes, (char)bits);
    buf_ch(out, 2);
    for (size_t at = 0; at < codes.len; at += 255) {
        const size_t some = codes.len - at < 255 ? codes.len - at : 255;
        buf_ch(out, (char)some);
        buf_add(out, codes.p + at, some);
    }
    buf_add(out, "\0;", 2);
    buf_free(&codes);
}
#endif
