/* Animations as frames at a constant rate. WebP's and Pillow's are compared by
 * tests/golden/image_oracle.py. */
#include "common/image/canvas.h"
#include "common/image/film.h"
#include "common/image/reel.h"
#include "tests/unit/test.h"
#include <string.h>

enum { W = 4, RED = 0, GREEN = 1, BLUE = 2, CLEAR = 3 /* the transparent colour */ };
enum { LEAVE = 1, TO_BACKGROUND = 2, TO_PREVIOUS = 3 };

static void u16(struct buf *b, unsigned v)
{
    buf_ch(b, (char)(v & 255));
    buf_ch(b, (char)(v >> 8));
}

/* A GIF of W x 1 pixels with four colours, whose background is green. */
static struct buf begin(void)
{
    static const uint8_t colours[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9};
    struct buf b = BUF_INIT;
    buf_add(&b, "GIF89a", 6);
    u16(&b, W), u16(&b, 1);
    buf_ch(&b, (char)0x81);
    buf_ch(&b, GREEN);
    buf_ch(&b, 0);
    buf_add(&b, colours, sizeof(colours));
    return b;
}

/* LZW codes of three bits: a code that clears precedes every pixel, so that they never grow. */
static void pixels(struct buf *b, const char *colours)
{
    unsigned bits = 0, held = 0;
    uint8_t bytes[16];
    size_t n = 0;
    for (const char *c = colours;; c++) {
        const unsigned codes[] = {4, *c ? (unsigned)(*c - '0') : 5};
        for (int i = 0; i < 2; i++) {
            bits |= codes[i] << held;
            for (held += 3; held >= 8; held -= 8, bits >>= 8)
                bytes[n++] = (uint8_t)bits;
        }
        if (!*c)
            break;
    }
    bytes[n++] = (uint8_t)bits;
    buf_ch(b, 2);
    buf_ch(b, (char)n);
    buf_add(b, bytes, n);
    buf_ch(b, 0);
}

/* Pixels from x on, as digits. */
static void frame(struct buf *b, unsigned x, const char *colours, unsigned ms, unsigned disposal,
                  bool transparent)
{
    buf_add(b, "!\xf9\x04", 3);
    buf_ch(b, (char)(disposal << 2 | transparent));
    u16(b, ms / 10);
    buf_ch(b, CLEAR);
    buf_ch(b, 0);
    buf_ch(b, ',');
    u16(b, x), u16(b, 0), u16(b, (unsigned)strlen(colours)), u16(b, 1);
    buf_ch(b, 0);
    pixels(b, colours);
}

static int decode(const struct buf *file, uint32_t frames, double fps, uint8_t *rgb, struct err *e)
{
    struct image_info info;
    if (image_sniff(file->p, file->len, &image_default_limits, &info, e))
        return -1;
    info.times = (struct image_times){frames, fps};
    return image_decode_here(file->p, file->len, &info, rgb, e);
}

/* Frames as digits of colours, '9' for white, between spaces. */
static void shows(const struct buf *file, double fps, const char *want)
{
    static const uint8_t colours[][3] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {9, 9, 9}};
    uint8_t rgb[16 * W * 3];
    struct err e = ERR_INIT;
    const uint32_t n = (uint32_t)(strlen(want) + 1) / (W + 1);
    if (decode(file, n, fps, rgb, &e))
        fail_msg("%s", e.msg);
    for (uint32_t i = 0; i < n * W; i++) {
        const char c = want[i / W * (W + 1) + i % W];
        const uint8_t white[3] = {255, 255, 255};
        if (memcmp(rgb + 3 * (size_t)i, c == '9' ? white : colours[c - '0'], 3) != 0)
            fail_msg("pixel %u of frame %u is not %c", i % W, i / W, c);
    }
}

static uint64_t length(const struct buf *file)
{
    uint64_t ms;
    struct err e = ERR_INIT;
    assert_int_equal(film_length(file->p, file->len, &ms, &e), 0);
    return ms;
}

/* At every second: 0.3 s of red, 1.2 s of green, then 0.1 s of blue, which no second shows. */
TEST(frames_are_those_of_the_time)
{
    struct buf b = begin();
    frame(&b, 0, "0000", 300, LEAVE, false);
    frame(&b, 0, "1111", 1200, LEAVE, false);
    frame(&b, 0, "2222", 0, LEAVE, false); /* browsers give it 100 ms */
    buf_ch(&b, ';');
    assert_int_equal(length(&b), 1600);
    shows(&b, 1, "0000 1111");
    shows(&b, 2, "0000 1111 1111 2222");
    shows(&b, 10, "0000 0000 0000 1111");
    shows(&b, 1, "0000 1111 2222 2222"); /* behind the end the last one */
    buf_free(&b);
}

TEST(parts_are_drawn_over_what_was_left)
{
    struct buf b = begin();
    frame(&b, 0, "0000", 1000, LEAVE, false);
    frame(&b, 1, "23", 1000, TO_PREVIOUS, true); /* the second pixel is transparent */
    frame(&b, 3, "2", 1000, TO_BACKGROUND, true);
    frame(&b, 0, "1", 1000, TO_BACKGROUND, false);
    frame(&b, 1, "2", 1000, LEAVE, false);
    buf_ch(&b, ';');
    shows(&b, 1, "0000 0200 0002 1009 1209");
    buf_free(&b);
}

/* A frame beyond the canvas is cut; without colours around, the first one has its own. */
TEST(canvases)
{
    struct buf b = begin();
    frame(&b, 1, "2", 1000, LEAVE, true);
    frame(&b, 3, "111", 1000, LEAVE, false);
    buf_ch(&b, ';');
    shows(&b, 1, "9299 9291");
    buf_free(&b);
}

/* What is complete counts, and is shown without what follows; nothing is read behind the end. */
TEST(cut_files)
{
    struct buf b = begin();
    uint8_t rgb[4 * W * 3];
    uint64_t ms;
    frame(&b, 0, "0000", 1000, LEAVE, false);
    const size_t one = b.len;
    frame(&b, 0, "1111", 1000, LEAVE, false);
    for (size_t n = 0; n < b.len; n++) {
        struct err e = ERR_INIT;
        struct buf cut = BUF_INIT;
        char *copy = malloc(n + 1);
        memcpy(copy, b.p, n);
        cut.p = copy, cut.len = n;
        const int rc = film_length(copy, n, &ms, &e);
        assert_int_equal(rc, n < one ? -1 : 0);
        assert_true(rc ? e.kind == ERR_VALIDATION : ms == 1000);
        e = (struct err)ERR_INIT;
        assert_int_equal(decode(&cut, 1, 1, rgb, &e), rc);
        if (rc == 0) /* a second one is asked for, and is not there */
            assert_int_equal(decode(&cut, 2, 1, rgb, &e), -1);
        assert_true(rc == 0 || e.kind == ERR_VALIDATION);
        free(copy);
    }
    assert_int_equal(length(&b), 2000);
    buf_free(&b);
}

TEST(other_files)
{
    static const char png[] = "\x89PNG\r\n\x1a\n            ";
    struct err e = ERR_INIT;
    uint64_t ms;
    assert_int_equal(film_length(png, sizeof(png), &ms, &e), -1);
    assert_string_equal(e.msg, "the video is neither frames nor a GIF or WebP file");
    e = (struct err)ERR_INIT;
    assert_int_equal(film_length("RIFF\4\0\0\0WEBP", 12, &ms, &e), -1);
    assert_string_equal(e.msg, "the WebP file is broken or incomplete");
}

static int decode_reel(void *arg, const void *bytes, size_t n, const struct image_times *times,
                       struct image *out, struct err *e)
{
    const struct buf file = {.p = (char *)(uintptr_t)bytes, .len = n};
    *(uint32_t *)arg += 1;
    assert_non_null(times);
    *out = (struct image){W, 1, malloc((size_t)times->frames * W * 3), times->frames, times->fps};
    return decode(&file, times->frames, times->fps, out->rgb, e);
}

/* The file is in it once, and is decoded once. */
TEST(a_reel_of_an_animation)
{
    struct buf b = begin(), reel = BUF_INIT;
    struct reel_info info;
    struct image p;
    struct err e = ERR_INIT;
    uint32_t calls = 0;
    frame(&b, 0, "0000", 1000, LEAVE, false);
    frame(&b, 0, "1111", 1000, LEAVE, false);
    buf_ch(&b, ';');
    const struct reel_frame file = {b.p, b.len};
    reel_write_film(&reel, &file, &(struct image_times){4, 2});
    assert_true(reel_is(reel.p, reel.len));
    assert_int_equal(reel_sniff(reel.p, reel.len, &image_default_limits, &info, &e), 0);
    assert_true(info.width == W && info.height == 1 && info.frames == 4 && info.fps == 2);
    assert_int_equal(reel_sniff(reel.p, reel.len, &(struct image_limits){100, 15}, &info, &e), -1);
    assert_string_equal(e.msg, "a video of 4 frames of 4 x 1 pixels has more than 15 pixels");
    assert_int_equal(reel_decode(decode_reel, &calls, reel.p, reel.len, &p, &e), 0);
    assert_true(calls == 1 && p.frames == 4 && p.fps == 2);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(p.rgb[3 * W * (size_t)i], i < 2 ? 255 : 0);
    image_free(&p);
    buf_free(&b), buf_free(&reel);
}

int main(void) { return tests_run(NULL, NULL); }
