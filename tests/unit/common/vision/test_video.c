/* Videos in prompts: sizes of frames, the text in place of a marker, positions. */
#include "tests/unit/common/vision/vision_files.h"

static struct vision *qwen(const char *type)
{
    char config[256];
    snprintf(config, sizeof(config),
             "{\"model_type\": \"%s\", \"video_token_id\": 151656, \"vision_config\": {}}", type);
    return load(config, NULL);
}

static struct vision_plan filmed(const struct vision *v, uint32_t frames, uint32_t h, uint32_t w,
                                 double fps)
{
    struct vision_plan p;
    struct err e = ERR_INIT;
    const struct vision_video video = {w, h, frames, fps};
    if (vision_plan_video(v, &video, &p, &e))
        fail_msg("%s", e.msg);
    return p;
}

static void refused(const struct vision *v, struct vision_video video, const char *why)
{
    struct vision_plan p;
    struct err e = ERR_INIT;
    assert_int_equal(vision_plan_video(v, &video, &p, &e), -1);
    assert_int_equal(e.kind, ERR_VALIDATION);
    assert_string_equal(e.msg, why);
}

/* Of smart_resize() in transformers' video processors, with the classes' sizes. */
static void frames_have_the_sizes_of_transformers(void **state)
{
    static const struct {
        uint32_t frames, h, w, h3, w3, h2, w2;
    } rows[] = {{2, 90, 120, 224, 320, 280, 392},
                {5, 853, 1280, 320, 480, 616, 924},
                {7, 10, 300, 32, 960, 84, 1736},
                {128, 480, 640, 64, 64, 476, 644},
                {3, 2000, 20, 3200, 32, 3192, 56}};
    struct vision *third = qwen("qwen3_vl"), *second = qwen("qwen2_5_vl");
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct vision_plan p = filmed(third, rows[i].frames, rows[i].h, rows[i].w, 2);
        assert_int_equal(p.crop_height, rows[i].h3);
        assert_int_equal(p.crop_width, rows[i].w3);
        assert_int_equal(p.n_crops, (rows[i].frames + 1) / 2);
        assert_int_equal(p.n_features, p.n_crops * (p.crop_height / 32) * (p.crop_width / 32));
        p = filmed(second, rows[i].frames, rows[i].h, rows[i].w, 2);
        assert_int_equal(p.crop_height, rows[i].h2);
        assert_int_equal(p.crop_width, rows[i].w2);
    }
    vision_free(third);
    vision_free(second);
}

static void replaced_by(const struct vision *v, const struct vision_plan *p, const char *want)
{
    struct buf out = BUF_INIT;
    vision_expand(v, p, 0, &out);
    assert_string_equal(out.p, want);
    buf_free(&out);
}

/* Qwen3-VL has times of frames in the text, and the tokens around a video around each of them. */
static void a_marker_becomes_frames(void **state)
{
    struct vision *v =
        load("{\"model_type\": \"qwen3_5\", \"video_token_id\": 151656, \"vision_config\": {}}",
             "{\"size\": {\"shortest_edge\": 1024, \"longest_edge\": 4096}}");
    struct vision_plan p = filmed(v, 3, 32, 64, 3);
    (void)state;
    assert_true(vision_takes_videos(v) && vision_frames_apart(v));
    assert_int_equal(vision_token_of(v, &p), 151656);
    assert_true(vision_format_of(v, &p)->mean[0] == 0.5F); /* of another class than images */
    assert_true(vision_format(v)->mean[0] < 0.49F);
    assert_string_equal(vision_video_marker(v), "<|vision_start|><|video_pad|><|vision_end|>");
    assert_int_equal(p.grid_h * p.grid_w, 1); /* 4 frames have at most 4096 pixels */
    replaced_by(v, &p,
                "<0.2 seconds><|vision_start|><|video_pad|><|vision_end|>"
                "<0.7 seconds><|vision_start|><|video_pad|><|vision_end|>");
    vision_free(v);

    v = load("{\"model_type\": \"qwen2_vl\", \"video_token_id\": 151656, \"vision_config\": {}}",
             "{\"min_pixels\": 784, \"max_pixels\": 1568}");
    p = filmed(v, 2, 28, 56, 1);
    assert_false(vision_frames_apart(v));
    assert_string_equal(vision_video_marker(v), "<|video_pad|>");
    assert_string_equal(vision_video_around(v), "<|vision_start|><|video_pad|><|vision_end|>");
    replaced_by(v, &p, "<|video_pad|><|video_pad|>");
    vision_free(v);
}

/* Grids of 1 x 2 that are one and a third positions apart; text goes on behind the last time. */
static void times_are_positions(void **state)
{
    struct vision *v = qwen("qwen2_5_vl");
    const struct vision_plan p = filmed(v, 7, 28, 56, 6);
    static const uint32_t want[][3] = {{0, 0, 0}, {1, 1, 1}, {1, 1, 2}, {2, 1, 1}, {2, 1, 2},
                                       {3, 1, 1}, {3, 1, 2}, {5, 1, 1}, {5, 1, 2}, {6, 6, 6}};
    uint32_t got[3];
    (void)state;
    assert_int_equal(p.n_crops, 4);
    const struct vision_place place = {1, 8, 1, 2, vision_interval(v, &p)};
    for (uint32_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        vision_position(v, &place, 1, i, got);
        assert_memory_equal(got, want[i], sizeof(got));
    }
    vision_free(v);
    v = qwen("qwen2_vl");
    assert_true(vision_interval(v, &p) == 1);
    vision_free(v);
}

/* The bounds of a file of images, of which the class' lower one for videos is above. */
static void one_bound_is_enough(void **state)
{
    struct vision *v =
        load("{\"model_type\": \"qwen2_5_vl\", \"video_token_id\": 151656, \"vision_config\": {}}",
             "{\"max_pixels\": 50176}");
    (void)state;
    assert_int_equal(filmed(v, 2, 448, 448, 2).crop_width, 224);
    vision_free(v);
}

static void what_no_model_takes(void **state)
{
    struct vision *v = qwen("qwen3_vl");
    struct err e = ERR_INIT;
    (void)state;
    refused(v, (struct vision_video){64, 64, 1, 2},
            "A video must have at least 2 frames. Given: 1");
    refused(v, (struct vision_video){64, 64, 129, 2},
            "A video may have at most 128 frames. Given: 129");
    refused(v, (struct vision_video){64, 64, 0, 2},
            "A video may have at most 128 frames. Given: 0");
    refused(v, (struct vision_video){64, 64, 2, 0},
            "A video of 64 x 64 pixels and 0 frames per second cannot be used");
    vision_free(v);
    v = family("gemma3", "siglip_vision_model");
    assert_false(vision_takes_videos(v));
    refused(v, (struct vision_video){64, 64, 2, 2}, "This model takes no videos");
    vision_free(v);
    v = load("{\"model_type\": \"qwen3_vl\", \"vision_config\": {}}", NULL); /* no video_token_id */
    assert_false(vision_takes_videos(v));
    vision_free(v);
    assert_int_equal(
        load_files("{\"model_type\": \"qwen3_vl\", \"video_token_id\": 5, \"vision_config\": {}}",
                   NULL, "{\"video_processor\": {\"temporal_patch_size\": 3}}", &v, &e),
        -1);
    assert_non_null(strstr(e.msg, "video_processor of processor_config.json: temporal_patch_size"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_have_the_sizes_of_transformers),
        cmocka_unit_test(a_marker_becomes_frames), cmocka_unit_test(times_are_positions),
        cmocka_unit_test(one_bound_is_enough), cmocka_unit_test(what_no_model_takes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
