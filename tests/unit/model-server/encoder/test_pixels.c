/* Crops, padding, layouts and threads of pixels_make(), on plans made by hand. What the numbers
 * themselves are is tested in tests/check/test_resample.c and tests/golden/vision/test_vision.c. */
#include "model-server/encoder/pixels.h"
#include "model-server/encoder/resample.h"
#include "model-server/encoder/resample_kernels.h"
#include "tests/unit/test.h"
#include <string.h>

/* value = byte: what went where. */
static const struct vision_format plain = {.filter = VISION_BICUBIC,
                                           .rescale = 1,
                                           .std = {1, 1, 1},
                                           .patch = 2,
                                           .merge = 2,
                                           .frames = 2,
                                           .layout = VISION_PATCHES_BY_FEATURE};

static struct image painted(uint32_t w, uint32_t h)
{
    struct image p = {.width = w, .height = h, .rgb = malloc(3 * (size_t)w * h)};
    assert_non_null(p.rgb);
    for (size_t i = 0; i < 3 * (size_t)w * h; i++)
        p.rgb[i] = (uint8_t)(i * 37 + i / 7 + 1);
    return p;
}

static uint8_t byte_at(const struct image *p, uint32_t x, uint32_t y, uint32_t c)
{
    return p->rgb[3 * ((size_t)y * p->width + x) + c];
}

static float *made(const struct vision_plan *p, const struct image *i, enum vision_layout layout,
                   const struct pixels_workers *w)
{
    struct err e = ERR_INIT;
    float *out = malloc(pixels_count(&plain, p, layout) * sizeof(float));
    assert_non_null(out);
    assert_int_equal(pixels_make(&plain, p, i, layout, w, out, &e), 0);
    return out;
}

static struct vision_plan unchanged(uint32_t w, uint32_t h)
{
    return (struct vision_plan){.width = w,
                                .height = h,
                                .resizes = {{-1, {0, 0, w, h}, w, h}},
                                .n_resizes = 1,
                                .n_crops = 1,
                                .crop_width = w,
                                .crop_height = h};
}

TEST(planes_are_channels)
{
    struct image i = painted(6, 4);
    const struct vision_plan p = unchanged(6, 4);
    float *out = made(&p, &i, VISION_PLANES, NULL);
    assert_int_equal(pixels_count(&plain, &p, VISION_PLANES), 72);
    for (uint32_t k = 0; k < 72; k++)
        assert_true(out[k] == byte_at(&i, k % 6, k / 6 % 4, k / 24));
    free(out);
    free(i.rgb);
}

/* [blocks][2][2][3][2 frames][2][2] of 8 x 4 pixels: two blocks side by side. */
TEST(patches_lie_by_feature_or_in_raster_order)
{
    struct image i = painted(8, 4);
    const struct vision_plan p = unchanged(8, 4);
    float *by_feature = made(&p, &i, VISION_PATCHES_BY_FEATURE, NULL);
    float *raster = made(&p, &i, VISION_PATCHES, NULL);
    assert_int_equal(pixels_count(&plain, &p, VISION_PATCHES), 8 * 24);
    for (uint32_t k = 0; k < 8 * 24; k++) {
        const uint32_t patch = k / 24, c = k / 8 % 3, y = k / 2 % 2, x = k % 2;
        const uint32_t col = patch / 4 * 2 + patch % 2, row = patch / 2 % 2;
        assert_true(by_feature[k] == byte_at(&i, col * 2 + x, row * 2 + y, c));
        assert_true(raster[k] == byte_at(&i, patch % 4 * 2 + x, patch / 4 * 2 + y, c));
    }
    free(by_feature);
    free(raster);
    free(i.rgb);
}

TEST(outside_is_black)
{
    struct image i = painted(5, 3);
    struct vision_plan p = unchanged(5, 3);
    p.crop_width = 8;
    p.crop_height = 4;
    p.n_crops = 3;
    p.crops[0] = (struct vision_crop){0, -2, -1};
    p.crops[1] = (struct vision_crop){0, 4, 2};
    p.crops[2] = (struct vision_crop){0, 100, -100};
    float *out = made(&p, &i, VISION_PLANES, NULL);
    for (uint32_t k = 0; k < 3 * 96; k++) {
        const struct vision_crop *c = &p.crops[k / 96];
        const int32_t x = c->x + (int32_t)(k % 8), y = c->y + (int32_t)(k / 8 % 4);
        const bool inside = x >= 0 && x < 5 && y >= 0 && y < 3;
        const float want = inside ? byte_at(&i, (uint32_t)x, (uint32_t)y, k / 32 % 3) : 0.0f;
        assert_true(out[k] == want);
    }
    free(out);
    free(i.rgb);
}

/* A part of the image, made larger, of which a part is made smaller; crops of both. */
static struct vision_plan twice(void)
{
    return (struct vision_plan){.width = 50,
                                .height = 40,
                                .resizes = {{-1, {7, 5, 31, 22}, 62, 51},
                                            {0, {11, 3, 40, 45}, 24, 16},
                                            {0, {0, 0, 62, 51}, 3000, 1}},
                                .n_resizes = 3,
                                .crops = {{1, 0, 0}, {0, 30, 9}, {1, 12, 4}, {2, 1500, 0}},
                                .n_crops = 4,
                                .crop_width = 12,
                                .crop_height = 12};
}

struct device {
    int threads;
};

/* Each thread has a range, the last one first. */
static void by_turns(struct device *d, void (*fn)(void *, int, size_t, size_t), void *arg, size_t n)
{
    for (int t = d->threads; t-- > 0;)
        fn(arg, t, n * (size_t)t / (size_t)d->threads, n * (size_t)(t + 1) / (size_t)d->threads);
}

TEST(threads_and_kernels_change_nothing)
{
    struct image i = painted(50, 40);
    const struct vision_plan p = twice();
    const struct pixels_workers one = {.threads = 1};
    float *want = made(&p, &i, VISION_PATCHES, &one);
    for (int threads = 1; threads <= 7; threads += 3) {
        struct device d = {threads};
        for (unsigned features = 0; features <= resample_features(); features = 2 * features + 1) {
            const struct pixels_workers w = {threads, by_turns, &d, features};
            float *got = made(&p, &i, VISION_PATCHES, &w);
            assert_memory_equal(got, want, pixels_count(&plain, &p, VISION_PATCHES) * 4);
            free(got);
        }
    }
    free(want);
    free(i.rgb);
}

/* The same step by step, each resize an image of its own. */
TEST(a_resize_of_a_part_is_of_an_image_of_its_own)
{
    struct image i = painted(50, 40), cut = {31, 22, malloc(3 * 31 * 22)};
    struct vision_plan p = twice();
    for (uint32_t y = 0; y < 22; y++)
        memcpy(cut.rgb + (size_t)y * 31 * 3, i.rgb + 3 * ((size_t)(y + 5) * 50 + 7), 31 * 3);
    float *want = made(&p, &i, VISION_PLANES, NULL);
    p.width = 31;
    p.height = 22;
    p.resizes[0].cut = (struct vision_rect){0, 0, 31, 22};
    float *got = made(&p, &cut, VISION_PLANES, NULL);
    assert_memory_equal(got, want, pixels_count(&plain, &p, VISION_PLANES) * sizeof(float));
    free(want);
    free(got);
    free(i.rgb);
    free(cut.rgb);
}

/* Weights of 46 pixels that become 32: with constants that are no floats the first one is less. */
TEST(hammings_constants_are_floats)
{
    static const int32_t want[] = {753266, 3311072, 129966};
    static const uint8_t rgb[46 * 3];
    const struct pixel_view from = {rgb, sizeof(rgb), 46, 1};
    struct resample r;
    struct err e = ERR_INIT;
    assert_int_equal(
        resample_open(&r, &from, 32, 1, (struct vision_rect){0, 0, 32, 1}, VISION_HAMMING, 0, &e),
        0);
    assert_int_equal(r.across.first[6], 8);
    assert_int_equal(r.across.count[6], 3);
    assert_memory_equal(r.across.k + (size_t)6 * r.across.stride, want, sizeof(want));
    resample_close(&r);
}

int main(void) { return tests_run(NULL, NULL); }
