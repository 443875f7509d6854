// What a file's header says, before any decoder: sizes, limits, and files that are none of ours.
#include "common/image/image.h"
#include "tests/image_made.h"
#include "tests/unit/test.h"

static int sniff(const void *p, size_t n, struct image_info *info, struct err *e)
{
    *e = (struct err)ERR_INIT;
    return image_sniff(p, n, &image_default_limits, info, e);
}

/* A PNG's first 33 bytes say the size; nothing behind them is needed. */
static void png_header(uint8_t out[33], uint32_t width, uint32_t height)
{
    memcpy(out, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
    for (int i = 0; i < 4; i++) {
        out[16 + i] = (uint8_t)(width >> (24 - 8 * i));
        out[20 + i] = (uint8_t)(height >> (24 - 8 * i));
    }
    memset(out + 24, 0, 9);
}

TEST(limits)
{
    static const struct {
        uint32_t width, height;
        bool fine;
    } rows[] = {{1, 1, true},        {16384, 3051, true},    {16384, 3052, false},
                {16385, 1, false},   {1, 16385, false},      {60000, 60000, false},
                {0, 5, false},       {5, 0, false},          {0xffffffff, 0xffffffff, false},
                {0x10000, 1, false}, {0x80000000, 2, false}, {7071, 7071, true}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t file[33];
        struct image_info info;
        struct err e;
        png_header(file, rows[i].width, rows[i].height);
        const int rc = sniff(file, sizeof(file), &info, &e);
        if ((rc == 0) != rows[i].fine)
            fail_msg("%u x %u: %s", rows[i].width, rows[i].height, e.msg);
        if (rc == 0)
            assert_true(info.width == rows[i].width && info.height == rows[i].height);
        else
            assert_int_equal(e.kind, ERR_VALIDATION);
    }
    const struct image_limits narrow = {100, 50};
    struct image_info info;
    struct err e = ERR_INIT;
    uint8_t file[33];
    png_header(file, 10, 6);
    assert_int_equal(image_sniff(file, sizeof(file), &narrow, &info, &e), -1);
    assert_string_equal(e.msg, "the image has 10 x 6 pixels, more than the 50 that are allowed");
    png_header(file, 101, 1);
    assert_int_equal(image_sniff(file, sizeof(file), &narrow, &info, &e), -1);
    assert_string_equal(e.msg,
                        "the image has 101 x 1 pixels, and neither side may have more than 100");
}

TEST(strangers)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *name; /* NULL: of no format that is known */
    } rows[] = {{"", 0, NULL},
                {"\x89PNG", 4, NULL},
                {"BM\0\0\0\0", 6, "BMP"},
                {"B", 1, NULL},
                {"II*\0\10\0\0\0", 8, "TIFF"},
                {"<svg xmlns='http://www.w3.org/2000/svg'/>", 41, "SVG"},
                {"\0\0\0\x1c"
                 "ftypheic",
                 12, "HEIC"},
                {"\0\0\0\x1c"
                 "ftypavif",
                 12, "AVIF"},
                {"\0\0\0\x1c"
                 "ftypavi",
                 11, NULL},
                {"RIFF\0\0\0\0WAVEfmt ", 16, NULL},
                {"GIF88a\1\0\1\0\0\0\0,", 14, NULL},
                {"%PDF-1.4", 8, "PDF"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct image_info info;
        struct err e;
        char want[100] = "the image is not a PNG, JPEG, WebP or GIF file";
        if (rows[i].name)
            snprintf(want, sizeof(want), "the image is in %s format, not PNG, JPEG, WebP or GIF",
                     rows[i].name);
        assert_int_equal(sniff(rows[i].bytes, rows[i].n, &info, &e), -1);
        assert_string_equal(e.msg, want);
        assert_int_equal(e.kind, ERR_VALIDATION);
    }
}

TEST(jpeg_segments)
{
    /* Fill bytes, a bare marker, rubbish, a comment; then the frame: 5 rows of 7. */
    static const char file[] = "\xff\xd8\xff\xff\xff\x01zz\xff\xfe\0\4ab\xff\xc2\0\x0b\10\0\5\0\7\1"
                               "\1\x11\0\xff\xda";
    struct image_info info;
    struct err e;
    assert_int_equal(sniff(file, sizeof(file) - 1, &info, &e), 0);
    assert_true(info.format == IMAGE_JPEG && info.width == 7 && info.height == 5);
    for (size_t n = 3; n < 25; n++) {
        assert_int_equal(sniff(file, n, &info, &e), -1);
        assert_string_equal(e.msg, "the JPEG file is broken or incomplete");
    }
}

/* Sizes as the three kinds of WebP say them; EXIF stands behind the image. */
TEST(webp_chunks)
{
    struct image_info info;
    struct err e;
    static const char lossy[] = "RIFF\0\0\0\0WEBPVP8 \0\0\0\0xxx\x9d\1\x2a\x2c\1\x14\xc0";
    assert_int_equal(sniff(lossy, sizeof(lossy) - 1, &info, &e), 0);
    assert_true(info.format == IMAGE_WEBP && info.width == 300 && info.height == 20);
    static const char lossless[] = "RIFF\0\0\0\0WEBPVP8L\0\0\0\0/\x02\x40\0\0";
    assert_int_equal(sniff(lossless, sizeof(lossless) - 1, &info, &e), 0);
    assert_true(info.width == 3 && info.height == 2);
    static const char extended[] =
        "RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x08\0\0\0\x09\0\0\4\0\0"
        "ODD \1\0\0\0x\0"
        "EXIF\x1a\0\0\0II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0";
    assert_int_equal(sniff(extended, sizeof(extended) - 1, &info, &e), 0);
    assert_true(info.orientation == 6 && info.width == 5 && info.height == 10);
    assert_int_equal(sniff(extended, 60, &info, &e), 0); /* EXIF is cut: as if it were not there */
    assert_true(info.orientation == 1 && info.width == 10 && info.height == 5);
    for (size_t n = 12; n < 30; n++) {
        assert_int_equal(sniff(extended, n, &info, &e), -1);
        assert_string_equal(e.msg, "the WebP file is broken or incomplete");
    }
}

TEST(gif_blocks)
{
    static const char file[] =
        "GIF89a\3\0\2\0\0\0\0!\xfe\3abc\0!\xf9\4\0\0\0\0\0,\1\0\0\0\5\0\1\0\0";
    struct image_info info;
    struct err e;
    assert_int_equal(sniff(file, sizeof(file) - 1, &info, &e), 0);
    assert_true(info.format == IMAGE_GIF && info.width == 6 && info.height == 2);
    for (size_t n = 6; n < sizeof(file) - 1; n++)
        assert_int_equal(sniff(file, n, &info, &e), -1);
}

TEST(names)
{
    assert_string_equal(image_mime(IMAGE_PNG), "image/png");
    assert_string_equal(image_mime(IMAGE_JPEG), "image/jpeg");
    assert_string_equal(image_mime(IMAGE_WEBP), "image/webp");
    assert_string_equal(image_mime(IMAGE_GIF), "image/gif");
}

int main(void) { return tests_run(NULL, NULL); }
