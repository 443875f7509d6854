/* JPEG with libjpeg-turbo's defaults, which Pillow uses: the slow integer transform and smooth
 * upsampling. Warnings about data are ignored, as in Pillow, but a truncated file is an error, not
 * grey. */
#include "common/image/canvas.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

/* A progressive file is decoded once per scan. Encoders write about ten. */
enum { SCANS_MAX = 500 };

struct jpeg_reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf fault;
    uint8_t *stored; /* one row */
    uint8_t *rgb;    /* one row */
    bool nomem;
};

static void on_error(j_common_ptr jpeg)
{
    struct jpeg_reader *r = jpeg->client_data;
    r->nomem = r->nomem || jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
    longjmp(r->fault, 1);
}

static void on_message(j_common_ptr jpeg, int level)
{
    (void)jpeg;
    (void)level;
}

static boolean on_end_of_file(j_decompress_ptr jpeg)
{
    on_error((j_common_ptr)jpeg);
    return FALSE;
}

static void on_progress(j_common_ptr jpeg)
{
    if (((j_decompress_ptr)jpeg)->input_scan_number > SCANS_MAX)
        on_error(jpeg);
}

static void set_colours(struct jpeg_reader *r)
{
    switch (r->jpeg.num_components) {
    case 1:
        r->jpeg.out_color_space = JCS_GRAYSCALE;
        return;
    case 3:
        r->jpeg.out_color_space = JCS_RGB;
        return;
    case 4:
        r->jpeg.out_color_space = JCS_CMYK;
        return;
    default:
        on_error((j_common_ptr)&r->jpeg);
    }
}

static void read_row(struct jpeg_reader *r, const struct canvas *c, uint32_t y)
{
    uint8_t *in_place = canvas_row(c, y), *to = in_place ? in_place : r->rgb;
    JSAMPROW row = r->jpeg.output_components == 3 ? to : r->stored;
    if (jpeg_read_scanlines(&r->jpeg, &row, 1) != 1)
        on_error((j_common_ptr)&r->jpeg);
    if (r->jpeg.output_components == 1)
        rgb_from_grey(to, row, c->width);
    else if (r->jpeg.output_components == 4)
        rgb_from_inverted_cmyk(to, row, c->width);
    canvas_put(c, y, to);
}

/* Errors in here longjmp to jpeg_file_decode(). */
static void read_picture(struct jpeg_reader *r, const uint8_t *bytes, size_t n,
                         const struct canvas *c)
{
    jpeg_create_decompress(&r->jpeg);
    r->progress.progress_monitor = on_progress;
    r->jpeg.progress = &r->progress;
    jpeg_mem_src(&r->jpeg, bytes, n);
    r->jpeg.src->fill_input_buffer = on_end_of_file;
    jpeg_read_header(&r->jpeg, TRUE);
    if (r->jpeg.image_width != c->width || r->jpeg.image_height != c->height)
        on_error((j_common_ptr)&r->jpeg);
    set_colours(r);
    r->stored = malloc((size_t)c->width * 4);
    r->rgb = malloc((size_t)c->width * 3);
    r->nomem = !r->stored || !r->rgb;
    if (r->nomem)
        on_error((j_common_ptr)&r->jpeg);
    jpeg_start_decompress(&r->jpeg);
    for (uint32_t y = 0; y < c->height; y++)
        read_row(r, c, y);
    jpeg_finish_decompress(&r->jpeg);
}

int jpeg_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e)
{
    struct jpeg_reader *r = calloc(1, sizeof(*r));
    volatile bool whole = false;
    if (!r)
        return err_nomem(e);
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    if (!setjmp(r->fault)) {
        read_picture(r, bytes, n, c);
        whole = true;
    }
    const bool nomem = r->nomem;
    jpeg_destroy_decompress(&r->jpeg);
    free(r->stored);
    free(r->rgb);
    free(r);
    return whole ? 0 : nomem ? err_nomem(e) : image_broken(IMAGE_JPEG, e);
}
