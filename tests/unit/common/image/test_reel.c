/* Videos as files of frames. */
#include "common/image/canvas.h"
#include "common/image/reel.h"
#include "tests/image_made.h"
#include "tests/unit/test.h"

enum { W = 5, H = 3, PIXELS = W * H };

static int decode(void *arg, const void *bytes, size_t n, const struct image_times *times,
                  struct image *out, struct err *e)
{
    struct image_info info;
    (void)arg;
    if (image_sniff(bytes, n, &image_default_limits, &info, e))
        return -1;
    if (times)
        info.times = *times;
    *out = (struct image){.width = info.width,
                          .height = info.height,
                          .frames = info.times.frames,
                          .fps = info.times.fps,
                          .rgb = malloc(image_bytes(&info))};
    return image_decode_here(bytes, n, &info, out->rgb, e);
}

/* A grey PNG. */
static struct buf frame(uint32_t width, uint8_t grey)
{
    struct buf file = BUF_INIT;
    uint8_t rows[PIXELS * 4];
    memset(rows, grey, sizeof(rows));
    made_png(&file, &(struct made_png){.width = width, .height = H, .colour = 0, .depth = 8}, rows);
    return file;
}

static struct buf reel(const uint32_t *widths, uint32_t n, double fps)
{
    struct buf files[4], out = BUF_INIT;
    struct reel_frame frames[4];
    for (uint32_t i = 0; i < n; i++) {
        files[i] = frame(widths[i], (uint8_t)(10 * i));
        frames[i] = (struct reel_frame){files[i].p, files[i].len};
    }
    reel_write(&out, frames, n, fps);
    for (uint32_t i = 0; i < n; i++)
        buf_free(&files[i]);
    return out;
}

static const uint32_t equal[] = {W, W, W};

TEST(frames_come_back)
{
    struct buf r = reel(equal, 3, 2.5);
    struct reel_info info;
    struct image p;
    struct err e = ERR_INIT;
    assert_true(reel_is(r.p, r.len));
    assert_int_equal(reel_sniff(r.p, r.len, &image_default_limits, &info, &e), 0);
    assert_true(info.width == W && info.height == H && info.frames == 3 && info.fps == 2.5);
    assert_int_equal(reel_decode(decode, NULL, r.p, r.len, &p, &e), 0);
    assert_true(p.width == W && p.height == H && p.frames == 3 && p.fps == 2.5);
    for (uint32_t i = 0; i < 3 * PIXELS * 3; i++)
        assert_int_equal(p.rgb[i], 10 * (i / (PIXELS * 3)));
    const uint64_t digest = image_digest(&p);
    p.fps = 2; /* positions differ, and so do keys and values */
    assert_int_not_equal(image_digest(&p), digest);
    p.frames = 0;
    assert_int_not_equal(image_digest(&p), digest);
    image_free(&p);
    buf_free(&r);
}

static void refused(const void *bytes, size_t n, const struct image_limits *l, const char *why)
{
    struct reel_info info;
    struct err e = ERR_INIT;
    uint8_t *copy = malloc(n + 1); /* sanitizers see what is read behind its end */
    memcpy(copy, bytes, n);
    assert_int_equal(reel_sniff(copy, n, l, &info, &e), -1);
    assert_int_equal(e.kind, ERR_VALIDATION);
    if (why)
        assert_string_equal(e.msg, why);
    free(copy);
}

TEST(bad_files)
{
    static const uint32_t differ[] = {W, W + 1};
    const struct image_limits narrow = {100, 2 * PIXELS};
    struct buf r = reel(equal, 3, 2), other = reel(differ, 2, 2), still = reel(equal, 3, 0);
    for (size_t n = 0; n < r.len; n += n < 80 ? 1 : 40)
        refused(r.p, n, &image_default_limits, NULL);
    refused(r.p, r.len, &narrow, "a video of 3 frames of 5 x 3 pixels has more than 30 pixels");
    refused(other.p, other.len, &image_default_limits,
            "the frames of a video have one size; one has 6 x 3 pixels, the first one 5 x 3");
    refused(still.p, still.len, &image_default_limits, "the video is broken or incomplete");
    buf_ch(&r, 0); /* what is behind the last frame */
    refused(r.p, r.len, &image_default_limits, "the video is broken or incomplete");
    r.p[r.len - 1] = 0;
    memset(r.p + 16, 0xff, 4);
    refused(r.p, r.len, &image_default_limits,
            "a video may have at most 768 frames. Given: 4294967295");
    buf_free(&r), buf_free(&other), buf_free(&still);
}

int main(void) { return tests_run(NULL, NULL); }
