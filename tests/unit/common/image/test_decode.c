// Pixels of image files: the reference data, exact; every kind of file made here; broken ones.
#include "common/image/canvas.h"
#include "common/json/json.h"
#include "tests/image_made.h"
#include "tests/unit/test.h"
#include <gnutls/crypto.h>

enum { FILE_MAX = 1 << 24 };

/* The pixels, or NULL with a sentence in *e. */
static uint8_t *decode(const void *bytes, size_t n, struct image_info *info, struct err *e)
{
    *e = (struct err)ERR_INIT;
    if (image_sniff(bytes, n, &image_default_limits, info, e))
        return NULL;
    uint8_t *rgb = malloc((size_t)info->width * info->height * 3);
    assert_non_null(rgb);
    if (image_decode_here(bytes, n, info, rgb, e) == 0)
        return rgb;
    free(rgb);
    return NULL;
}

static uint8_t *decode_made(struct buf *file, struct image_info *info)
{
    struct err e;
    uint8_t *rgb = decode(file->p, file->len, info, &e);
    buf_free(file);
    if (!rgb)
        fail_msg("%s", e.msg);
    return rgb;
}

/* ---------------------------------------------------------------- the reference data */
static void hex_digest(const struct image_info *info, const uint8_t *rgb, char hex[65])
{
    unsigned char out[32];
    gnutls_hash_fast(GNUTLS_DIG_SHA256, rgb, (size_t)info->width * info->height * 3, out);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", out[i]);
}

static void check_reference(const cJSON *want, const char *name, const char *bytes, size_t n)
{
    struct image_info info;
    struct err e;
    char hex[65];
    const cJSON *probe;
    uint8_t *rgb = decode(bytes, n, &info, &e);
    if (json_bool(want, "error", false)) {
        if (rgb)
            fail_msg("%s was accepted", name);
        assert_int_equal(e.kind, ERR_VALIDATION);
        return;
    }
    if (!rgb)
        fail_msg("%s: %s", name, e.msg);
    assert_int_equal(info.width, json_int(want, "width", 0));
    assert_int_equal(info.height, json_int(want, "height", 0));
    assert_int_equal(info.orientation, json_int(want, "orientation", 0));
    cJSON_ArrayForEach(probe, json_get(want, "probes"))
    {
        int v[5], i = 0;
        const cJSON *number;
        cJSON_ArrayForEach(number, probe) v[i++] = number->valueint;
        const uint8_t *p = rgb + 3 * ((size_t)v[0] * info.width + (size_t)v[1]);
        if (p[0] != v[2] || p[1] != v[3] || p[2] != v[4])
            fail_msg("%s: pixel (%d, %d) is %d %d %d", name, v[0], v[1], p[0], p[1], p[2]);
    }
    hex_digest(&info, rgb, hex);
    if (strcmp(hex, json_str(want, "rgb_sha256", "")) != 0)
        fail_msg("%s: other pixels", name);
    free(rgb);
}

TEST(reference)
{
    struct err e = ERR_INIT;
    const char *list = test_data("vision/images/images.json");
    if (!list) {
        TEST_SKIPPED(33, "no reference data: vision/images");
        return;
    }
    cJSON *all = json_load(list, FILE_MAX, &e);
    const cJSON *one;
    cJSON_ArrayForEach(one, all)
    {
        char name[200];
        size_t n;
        snprintf(name, sizeof(name), "vision/images/%s", one->string);
        char *bytes = file_read(test_data(name), FILE_MAX, &n, &e);
        assert_non_null(bytes);
        check_reference(one, one->string, bytes, n);
        free(bytes);
    }
    cJSON_Delete(all);
}

/* ---------------------------------------------------------------- PNG */
static void expect_pixel(const uint8_t *rgb, size_t at, unsigned want)
{
    const unsigned got =
        (unsigned)rgb[3 * at] << 16 | (unsigned)rgb[3 * at + 1] << 8 | rgb[3 * at + 2];
    if (got != want)
        fail_msg("pixel %zu is %06x, not %06x", at, got, want);
}

static void expect_png(const struct made_png *m, const uint8_t *rows, const unsigned *want)
{
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        struct buf file = BUF_INIT;
        struct image_info info;
        struct made_png made = *m;
        made.interlaced = interlaced;
        made_png(&file, &made, rows);
        uint8_t *rgb = decode_made(&file, &info);
        assert_int_equal(info.format, IMAGE_PNG);
        assert_int_equal(info.width, m->width);
        assert_int_equal(info.height, m->height);
        for (size_t i = 0; i < (size_t)m->width * m->height; i++)
            expect_pixel(rgb, i, want[i]);
        free(rgb);
    }
}

TEST(png_grey)
{
    const struct made_png bits = {.width = 9, .height = 1, .colour = 0, .depth = 1};
    expect_png(&bits, (uint8_t[]){0xa5, 0x80},
               (unsigned[]){0xffffff, 0, 0xffffff, 0, 0, 0xffffff, 0, 0xffffff, 0xffffff});
    const struct made_png two = {.width = 4, .height = 1, .colour = 0, .depth = 2};
    expect_png(&two, (uint8_t[]){0x1b}, (unsigned[]){0, 0x555555, 0xaaaaaa, 0xffffff});
    const struct made_png four = {.width = 3, .height = 1, .colour = 0, .depth = 4};
    expect_png(&four, (uint8_t[]){0x1f, 0x70}, (unsigned[]){0x111111, 0xffffff, 0x777777});
    const struct made_png wide = {.width = 2, .height = 1, .colour = 0, .depth = 16};
    expect_png(&wide, (uint8_t[]){0x12, 0xff, 0xfe, 0x80}, (unsigned[]){0x121212, 0xfefefe});
    const struct made_png pair = {.width = 2, .height = 1, .colour = 4, .depth = 8};
    expect_png(&pair, (uint8_t[]){10, 255, 0, 128}, (unsigned[]){0x0a0a0a, 0x7f7f7f});
}

TEST(png_colour)
{
    const struct made_png plain = {.width = 2, .height = 2, .colour = 2, .depth = 8};
    expect_png(&plain, (uint8_t[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
               (unsigned[]){0x010203, 0x040506, 0x070809, 0x0a0b0c});
    const struct made_png wide = {.width = 1, .height = 1, .colour = 2, .depth = 16};
    expect_png(&wide, (uint8_t[]){1, 99, 2, 255, 3, 128}, (unsigned[]){0x010203});
    const struct made_png alpha = {.width = 3, .height = 1, .colour = 6, .depth = 8};
    expect_png(&alpha, (uint8_t[]){1, 2, 3, 255, 4, 5, 6, 0, 0, 100, 200, 51},
               (unsigned[]){0x010203, 0xffffff, 0xcce0f4});
}

TEST(png_transparency)
{
    const png_color_16 grey_key = {.gray = 7}, colour_key = {.red = 1, .green = 2, .blue = 3};
    const struct made_png grey = {
        .width = 2, .height = 1, .colour = 0, .depth = 8, .key = &grey_key};
    expect_png(&grey, (uint8_t[]){7, 8}, (unsigned[]){0xffffff, 0x080808});
    const struct made_png plain = {
        .width = 2, .height = 1, .colour = 2, .depth = 8, .key = &colour_key};
    expect_png(&plain, (uint8_t[]){1, 2, 3, 1, 2, 4}, (unsigned[]){0xffffff, 0x010204});
    const png_color colours[] = {{1, 2, 3}, {4, 5, 6}, {9, 9, 9}};
    const struct made_png palette = {.width = 3,
                                     .height = 1,
                                     .colour = 3,
                                     .depth = 2,
                                     .palette = colours,
                                     .n_palette = 3,
                                     .alpha = (png_byte[]){255, 0},
                                     .n_alpha = 2};
    expect_png(&palette, (uint8_t[]){0x18}, (unsigned[]){0x010203, 0xffffff, 0x090909});
}

/* ---------------------------------------------------------------- orientations */
/* Where the pixels 1 .. 6 of an image of 3 x 2 are shown. */
static const struct {
    uint32_t width, height;
    uint8_t shown[6];
} turned[9] = {[1] = {3, 2, {1, 2, 3, 4, 5, 6}}, [2] = {3, 2, {3, 2, 1, 6, 5, 4}},
               [3] = {3, 2, {6, 5, 4, 3, 2, 1}}, [4] = {3, 2, {4, 5, 6, 1, 2, 3}},
               [5] = {2, 3, {1, 4, 2, 5, 3, 6}}, [6] = {2, 3, {4, 1, 5, 2, 6, 3}},
               [7] = {2, 3, {6, 3, 5, 2, 4, 1}}, [8] = {2, 3, {3, 6, 2, 5, 1, 4}}};

TEST(orientations)
{
    for (unsigned o = 1; o <= 8; o++) {
        struct image_info info;
        struct buf file = BUF_INIT;
        const struct made_png m = {
            .width = 3, .height = 2, .colour = 0, .depth = 8, .orientation = o};
        made_png(&file, &m, (uint8_t[]){1, 2, 3, 4, 5, 6});
        uint8_t *rgb = decode_made(&file, &info);
        assert_int_equal(info.orientation, o);
        assert_int_equal(info.width, turned[o].width);
        assert_int_equal(info.height, turned[o].height);
        for (size_t i = 0; i < 6; i++)
            expect_pixel(rgb, i, turned[o].shown[i] * 0x010101U);
        free(rgb);
    }
}

TEST(exif_blocks)
{
    uint8_t block[32];
    for (unsigned o = 0; o <= 9; o++)
        for (int is_big = 0; is_big < 2; is_big++) {
            memcpy(block, "Exif\0", 6);
            const size_t n = made_exif(block + 6, o, is_big);
            const unsigned want = o >= 1 && o <= 8 ? o : 1;
            assert_int_equal(exif_orientation(block + 6, n), want);
            assert_int_equal(exif_orientation(block, n + 6), want);
            for (size_t cut = 0; cut < 22; cut++) /* the entry's twelve bytes are needed */
                assert_int_equal(exif_orientation(block + 6, cut), 1);
        }
    made_exif(block, 6, true);
    block[8] = block[9] = 0xff; /* entries said, not there */
    assert_int_equal(exif_orientation(block, 26), 6);
    memset(block + 4, 0xff, 4); /* a directory outside */
    assert_int_equal(exif_orientation(block, 26), 1);
}

/* ---------------------------------------------------------------- JPEG, WebP, GIF */
TEST(jpeg_colours)
{
    struct image_info info;
    struct buf file = BUF_INIT;
    uint8_t flat[20 * 10 * 4];
    memset(flat, 200, sizeof(flat));
    made_jpeg(&file, 20, 10, 1, flat, 6);
    uint8_t *rgb = decode_made(&file, &info);
    assert_true(info.format == IMAGE_JPEG && info.width == 10 && info.height == 20);
    expect_pixel(rgb, 199, 0xc8c8c8);
    free(rgb);
    made_jpeg(&file, 20, 10, 3, flat, 0);
    rgb = decode_made(&file, &info);
    assert_true(info.width == 20 && info.height == 10 && info.orientation == 1);
    expect_pixel(rgb, 0, 0xc8c8c8);
    free(rgb);
    /* Each ink 55 of 255: 200 - 55 * 200 / 255. */
    made_jpeg(&file, 20, 10, 4, flat, 0);
    rgb = decode_made(&file, &info);
    expect_pixel(rgb, 0, 0x9d9d9d);
    free(rgb);
}

TEST(webp_alpha)
{
    struct image_info info;
    struct buf file = BUF_INIT;
    made_webp(&file, 2, 1, (uint8_t[]){1, 2, 3, 255, 0, 100, 200, 51});
    uint8_t *rgb = decode_made(&file, &info);
    assert_true(info.format == IMAGE_WEBP && info.width == 2 && info.height == 1);
    expect_pixel(rgb, 0, 0x010203);
    expect_pixel(rgb, 1, 0xcce0f4);
    free(rgb);
    made_webp(&file, 1, 2, (uint8_t[]){9, 8, 7, 255, 6, 5, 4, 255});
    rgb = decode_made(&file, &info);
    expect_pixel(rgb, 1, 0x060504);
    free(rgb);
}

TEST(gif_frames)
{
    static const uint8_t colours[12] = {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4};
    static const uint8_t others[12] = {9, 9, 9, 8, 8, 8, 7, 7, 7, 6, 6, 6};
    struct image_info info;
    struct buf file = BUF_INIT;
    struct made_gif m = {.width = 2,
                         .height = 2,
                         .frame_width = 2,
                         .frame_height = 2,
                         .transparent = -1,
                         .global = colours};
    made_gif(&file, &m, (uint8_t[]){0, 1, 2, 3});
    uint8_t *rgb = decode_made(&file, &info);
    for (unsigned i = 0; i < 4; i++)
        expect_pixel(rgb, i, (i + 1) * 0x010101);
    free(rgb);
    /* The frame is larger than the file's size, lies aside, and has colours of its own. */
    m = (struct made_gif){.width = 1,
                          .height = 1,
                          .left = 1,
                          .frame_width = 1,
                          .frame_height = 2,
                          .transparent = 3,
                          .global = colours,
                          .local = others};
    made_gif(&file, &m, (uint8_t[]){1, 3});
    rgb = decode_made(&file, &info);
    assert_true(info.format == IMAGE_GIF && info.width == 2 && info.height == 2);
    expect_pixel(rgb, 0, 0xffffff); /* under the frame: the transparent colour */
    expect_pixel(rgb, 1, 0x080808);
    expect_pixel(rgb, 3, 0xffffff);
    free(rgb);
    /* Without a palette, an index is a grey; lines of an interlaced frame in their own order. */
    m = (struct made_gif){.width = 1,
                          .height = 9,
                          .frame_width = 1,
                          .frame_height = 9,
                          .interlaced = true,
                          .transparent = -1};
    made_gif(&file, &m, (uint8_t[]){0, 1, 2, 3, 3, 2, 2, 1, 1});
    rgb = decode_made(&file, &info);
    static const uint8_t rows[9] = {0, 2, 3, 2, 2, 1, 3, 1, 1};
    for (size_t y = 0; y < 9; y++)
        expect_pixel(rgb, y, rows[y] * 0x010101U);
    free(rgb);
}

/* ---------------------------------------------------------------- arithmetic */
/* Pillow's own integers, as its source has them. */
static uint8_t pillow_blend(uint32_t s, uint32_t a)
{
    if (a == 0)
        return 255;
    const uint32_t b = 255 * (255 - a), o = a * 255 + b, c1 = a * 255 * 255 * 128 / o;
    const uint32_t c2 = 255 * 128 - c1, t = s * c1 + 255 * c2 + (128 << 7);
    return (uint8_t)((((t >> 8) + t) >> 8) >> 7);
}

TEST(blending)
{
    for (uint32_t a = 0; a < 256; a++)
        for (uint32_t s = 0; s < 256; s++) {
            const uint8_t in[4] = {(uint8_t)s, (uint8_t)s, (uint8_t)s, (uint8_t)a};
            uint8_t rgb[3], want = pillow_blend(s, a);
            rgb_from_rgba(rgb, in, 1);
            assert_int_equal(rgb[0], want);
            rgb_from_grey_alpha(rgb, in + 2, 1);
            assert_int_equal(rgb[2], want);
        }
}

TEST(digests)
{
    uint8_t pixels[12] = {1, 2, 3};
    const struct image a = {2, 2, pixels, 0, 0}, b = {1, 4, pixels, 0, 0}, same = a;
    const uint64_t d = image_digest(&a);
    assert_true(d == image_digest(&same) && d != image_digest(&b) && d != 0);
    /* The first 8 bytes of what sha256sum says of these 20. */
    assert_int_equal(d, 0x13cb4b8269707e58ull);
    pixels[11] = 1;
    assert_true(d != image_digest(&a));
}

/* ---------------------------------------------------------------- broken files */
/* Every cut of a file is refused or, of a GIF's end, shown; nothing else happens. */
TEST(cuts)
{
    uint8_t pixels[16 * 16 * 4];
    for (size_t i = 0; i < sizeof(pixels); i++)
        pixels[i] = (uint8_t)(i * 37);
    const struct made_png m = {.width = 16, .height = 16, .colour = 6, .depth = 8};
    const struct made_gif g = {
        .width = 8, .height = 8, .frame_width = 8, .frame_height = 8, .transparent = -1};
    struct buf files[4] = {BUF_INIT, BUF_INIT, BUF_INIT, BUF_INIT};
    const uint8_t zeros[64] = {0};
    made_png(&files[0], &m, pixels);
    made_jpeg(&files[1], 16, 16, 3, pixels, 0);
    made_webp(&files[2], 16, 16, pixels);
    made_gif(&files[3], &g, zeros);
    for (int f = 0; f < 4; f++) {
        for (size_t n = 0; n < files[f].len; n++) {
            struct image_info info;
            struct err e;
            uint8_t *own = malloc(n + 1);
            memcpy(own, files[f].p, n);
            uint8_t *rgb = decode(own, n, &info, &e);
            if (rgb && f != 3)
                fail_msg("file %d was accepted after %zu bytes", f, n);
            if (!rgb)
                assert_int_equal(e.kind, ERR_VALIDATION);
            free(rgb);
            free(own);
        }
        buf_free(&files[f]);
    }
}

int main(void) { return tests_run(NULL, NULL); }
