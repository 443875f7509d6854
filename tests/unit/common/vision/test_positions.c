/* Coordinates of tokens in prompts with images. */
#include "tests/unit/common/vision/vision_files.h"

TEST(positions_go_on_behind_the_longer_side)
{
    const struct vision_place places[] = {{2, 6, 2, 3, 0}, {9, 4, 4, 1, 0}};
    static const uint32_t want[][3] = {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 2, 3},   {2, 2, 4},
                                       {2, 3, 2}, {2, 3, 3}, {2, 3, 4}, {5, 5, 5},   {6, 6, 6},
                                       {6, 7, 6}, {6, 8, 6}, {6, 9, 6}, {10, 10, 10}};
    uint32_t got[3];
    struct vision *v = load("{\"model_type\":\"qwen2_vl\",\"vision_config\":{}}", NULL);
    for (uint32_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        vision_position(v, places, 2, i, got);
        assert_memory_equal(got, want[i], sizeof(got));
    }
    vision_position(v, places, 2, 1000, got);
    assert_int_equal(got[0], 997);
    vision_position(v, NULL, 0, 7, got);
    assert_int_equal(got[2], 7);
    vision_free(v);
}

/* Column, row and number of the image; its first and its last feature are as text. */
TEST(hunyuan_counts_within_an_image)
{
    const struct vision_place places[] = {{1, 6, 2, 2, 0}, {8, 5, 1, 3, 0}};
    static const uint32_t want[][3] = {{0, 0, 0}, {1, 1, 1}, {0, 0, 0},    {1, 0, 0},   {0, 1, 0},
                                       {1, 1, 0}, {6, 6, 6}, {7, 7, 7},    {8, 8, 8},   {0, 0, 1},
                                       {1, 0, 1}, {2, 0, 1}, {12, 12, 12}, {13, 13, 13}};
    uint32_t got[3];
    struct vision *v = load("{\"model_type\":\"hunyuan_vl\",\"vision_config\":{}}", NULL);
    for (uint32_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        vision_position(v, places, 2, i, got);
        assert_memory_equal(got, want[i], sizeof(got));
    }
    vision_free(v);
}

/* Ends of rows and of images are features, and `resample` of the file is not used. */
TEST(hunyuan_has_features_between)
{
    struct vision *v =
        load("{\"model_type\":\"hunyuan_vl\",\"vision_config\":{\"cat_extra_token\":1}}",
             "{\"min_pixels\":1024,\"max_pixels\":8192,\"resample\":1}");
    const struct vision_plan p = planned(v, 64, 96);
    assert_int_equal(p.n_features, 3 * (2 + 1) + 2);
    assert_int_equal(vision_format(v)->filter, VISION_BICUBIC);
    assert_int_equal(vision_token(v), 120120);
    vision_free(v);
    struct err e = ERR_INIT;
    assert_int_equal(
        load_files("{\"model_type\":\"hunyuan_vl\",\"vision_config\":{\"cat_extra_token\":0}}",
                   NULL, NULL, &v, &e),
        -1);
    assert_non_null(strstr(e.msg, "cat_extra_token"));
}

int main(void) { return tests_run(NULL, NULL); }
