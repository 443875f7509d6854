/* test_resample.c - resizing against a reference that keeps no rings and no windows, and kernels
 * against their reference, bit by bit, on shapes of a fixed seed. */
#include "model-server/encoder/resample.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <string.h>

static struct rng rng;
enum { EDGE = 16, FILL = 0xa5 };

/* Pixels that end where their block ends, so that a sanitizer or valgrind sees what is read behind
 * them. */
static uint8_t *random_pixels(uint32_t w, uint32_t h)
{
    uint8_t *p = malloc(3 * (size_t)w * h);
    assert_non_null(p);
    const bool steep = rng_below(&rng, 4) == 0; /* bright and dark alone: overshoot */
    for (size_t i = 0; i < 3 * (size_t)w * h; i++)
        p[i] = (uint8_t)(steep ? rng_below(&rng, 2) * 255 : rng_below(&rng, 256));
    return p;
}

static uint32_t random_side(void)
{
    static const uint32_t most[] = {4, 20, 70, 300};
    return 1 + rng_below(&rng, most[rng_below(&rng, 4)]);
}

/* A window of a picture, resized, in rows of 3 width + 1 bytes. */
static uint8_t *resized(const struct pixel_view *v, uint32_t w, uint32_t h,
                        const struct vision_rect *window, enum vision_filter filter,
                        unsigned features, uint32_t pieces)
{
    struct resample r;
    struct err e = ERR_INIT;
    const size_t row = 3 * (size_t)window->width + 1;
    assert_int_equal(resample_open(&r, v, w, h, *window, filter, features, &e), 0);
    uint8_t *out = malloc(row * window->height + EDGE), *scratch = malloc(resample_scratch(&r) + 1);
    assert_true(out && scratch);
    memset(out, FILL, row * window->height + EDGE);
    for (uint32_t i = 0; i < pieces; i++)
        resample_rows(&r, out, row, (uint32_t)((uint64_t)window->height * i / pieces),
                      (uint32_t)((uint64_t)window->height * (i + 1) / pieces), scratch);
    for (int i = 0; i < EDGE; i++)
        assert_int_equal(out[row * window->height + (size_t)i], FILL);
    resample_close(&r);
    free(scratch);
    return out;
}

static void same_rows(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes,
                      const struct vision_rect *window, const char *what, unsigned features)
{
    for (uint32_t y = 0; y < window->height; y++)
        if (memcmp(a + y * a_bytes, b + y * b_bytes, 3 * (size_t)window->width) != 0)
            fail_msg("%s, features %u: %u x %u, row %u has other bits", what, features,
                     window->width, window->height, y);
}

TEST(windows_pieces_and_kernels_change_nothing)
{
    const unsigned has = resample_features();
    for (int round = 0; round < 400; round++) {
        const uint32_t from_w = random_side(), from_h = random_side();
        const uint32_t w = rng_below(&rng, 6) ? random_side() : from_w;
        const uint32_t h = rng_below(&rng, 6) ? random_side() : from_h;
        const enum vision_filter filter = (enum vision_filter)rng_below(&rng, VISION_HAMMING + 1);
        const struct vision_rect all = {0, 0, w, h};
        struct vision_rect part = {rng_below(&rng, w), rng_below(&rng, h), 0, 0};
        part.width = 1 + rng_below(&rng, w - part.x);
        part.height = 1 + rng_below(&rng, h - part.y);
        uint8_t *pixels = random_pixels(from_w, from_h);
        const struct pixel_view v = {pixels, 3 * (size_t)from_w, from_w, from_h};
        uint8_t *want = resized(&v, w, h, &all, filter, 0, 1);
        for (unsigned features = 0; features <= has; features = 2 * features + 1) {
            uint8_t *whole = resized(&v, w, h, &all, filter, features, 1 + rng_below(&rng, 4));
            uint8_t *cut = resized(&v, w, h, &part, filter, features, 1 + rng_below(&rng, 3));
            const size_t row = 3 * (size_t)w + 1;
            same_rows(whole, row, want, row, &all, "whole", features);
            same_rows(cut, 3 * (size_t)part.width + 1, want + part.y * row + 3 * (size_t)part.x,
                      row, &part, "window", features);
            free(whole);
            free(cut);
        }
        free(want);
        free(pixels);
    }
}

/* One axis of a small case, summed in doubles: what the integers round. */
TEST(sums_are_near_those_of_doubles)
{
    for (int round = 0; round < 100; round++) {
        const uint32_t from = 1 + rng_below(&rng, 90), to = 1 + rng_below(&rng, 90);
        uint8_t *pixels = random_pixels(from, 1);
        const struct pixel_view v = {pixels, 3 * (size_t)from, from, 1};
        const struct vision_rect all = {0, 0, to, 1};
        uint8_t *got = resized(&v, to, 1, &all, VISION_BILINEAR, resample_features(), 1);
        const double scale = (double)from / to, wide = scale > 1 ? scale : 1;
        for (uint32_t i = 0; i < to && from != to; i++) {
            double sum = 0, weights = 0;
            for (uint32_t j = 0; j < from; j++) {
                const double off = (j + 0.5 - (i + 0.5) * scale) / wide;
                const double w = off < 0 ? 1 + off : 1 - off;
                sum += w > 0 ? w * pixels[3 * j] : 0;
                weights += w > 0 ? w : 0;
            }
            const double error = got[3 * i] - sum / weights;
            assert_true(error < 0.51 && error > -0.51);
        }
        free(got);
        free(pixels);
    }
}

TEST(numbers_are_the_same_everywhere)
{
    struct byte_numbers b = {.rescale = 0.00392156862745098,
                             .mean = {0.48145466f, 0.4578275f, 0.40821073f},
                             .std = {0.26862954f, 0.26130258f, 0.27577711f}};
    enum { MOST = 70, ROOM = 3 * 2 * MOST };
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 256; i++)
            b.value[c][i] = ((float)(i * b.rescale) - b.mean[c]) / b.std[c];
    for (uint32_t n = 1; n <= MOST; n++)
        for (uint32_t frames = 1; frames <= 2; frames++)
            for (unsigned features = 0; features <= resample_features();
                 features = 2 * features + 1) {
                struct resample_kernels k;
                float want[ROOM], got[ROOM];
                uint8_t *pixels = random_pixels(n, 1);
                memset(want, FILL, sizeof(want));
                memset(got, FILL, sizeof(got));
                resample_spread_ref(want, frames * MOST, frames, MOST, pixels, n, &b);
                resample_kernels_init(&k, features);
                k.spread(got, frames * MOST, frames, MOST, pixels, n, &b);
                if (memcmp(want, got, sizeof(got)) != 0)
                    fail_msg("%u pixels, features %u: other bits", n, features);
                free(pixels);
            }
}

/* All 256 bytes of each channel, by the kernel that computes. */
TEST(computed_numbers_are_the_tables)
{
    static const double rescales[] = {1.0 / 255, 0.00392156862745098, 1.0, 1.0 / 127.5};
    struct resample_kernels k;
    uint8_t pixels[256 * 3];
    float got[256 * 3];
    resample_kernels_init(&k, resample_features());
    for (int i = 0; i < 256 * 3; i++)
        pixels[i] = (uint8_t)(i / 3);
    for (int round = 0; round < 200; round++) {
        struct byte_numbers b = {.rescale = rescales[round % 4]};
        for (int c = 0; c < 3; c++) {
            b.mean[c] = (float)rng_below(&rng, 10000) / 10000;
            b.std[c] = (float)(1 + rng_below(&rng, 10000)) / 10000;
            for (int i = 0; i < 256; i++)
                b.value[c][i] = ((float)(i * b.rescale) - b.mean[c]) / b.std[c];
        }
        k.spread(got, 256, 1, 0, pixels, 256, &b);
        assert_memory_equal(got, b.value, sizeof(got));
    }
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
