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
TEST(frames_have_the_sizes_of_transformers)
{
    static const struct {
        uint32_t frames, h, w, h3, w3, h2, w2;
    } rows[] = {{2, 90, 120, 224, 320, 280, 392},
                {5, 853, 1280, 320, 480, 616, 924},
                {7, 10, 300, 32, 960, 84, 1736},
                {128, 480, 640, 64, 64, 476, 644},
                {3, 2000, 20, 3200, 32, 3192, 56}};
    struct vision *third = qwen("qwen3_vl"), *second = qwen("qwen2_5_vl");
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
TEST(a_marker_becomes_frames)
{
    struct vision *v =
        load("{\"model_type\": \"qwen3_5\", \"video_token_id\": 151656, \"vision_config\": {}}",
             "{\"size\": {\"shortest_edge\": 1024, \"longest_edge\": 4096}}");
    struct vision_plan p = filmed(v, 3, 32, 64, 3);
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
TEST(times_are_positions)
{
    struct vision *v = qwen("qwen2_5_vl");
    const struct vision_plan p = filmed(v, 7, 28, 56, 6);
    static const uint32_t want[][3] = {{0, 0, 0}, {1, 1, 1}, {1, 1, 2}, {2, 1, 1}, {2, 1, 2},
                                       {3, 1, 1}, {3, 1, 2}, {5, 1, 1}, {5, 1, 2}, {6, 6, 6}};
    uint32_t got[3];
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
TEST(one_bound_is_enough)
{
    struct vision *v =
        load("{\"model_type\": \"qwen2_5_vl\", \"video_token_id\": 151656, \"vision_config\": {}}",
             "{\"max_pixels\": 50176}");
    assert_int_equal(filmed(v, 2, 448, 448, 2).crop_width, 224);
    vision_free(v);
}

static struct vision *glm(const char *type)
{
    char config[256];
    snprintf(config, sizeof(config),
             "{\"model_type\": \"%s\", \"video_token_id\": 151344, \"vision_config\": {}}", type);
    return load(config, NULL);
}

/* As smart_resize() of transformers' Glm4vVideoProcessor and Gemma4VideoProcessor with the classes'
 * sizes, 70 features for a frame of Gemma 4. */
TEST(frames_of_glm_and_gemma_have_the_sizes_of_transformers)
{
    static const struct {
        uint32_t frames, h, w, glm_h, glm_w, gemma_h, gemma_w;
    } rows[] = {{2, 90, 120, 84, 112, 336, 432},
                {5, 853, 1280, 840, 1288, 288, 480},
                {7, 10, 300, 28, 840, 48, 2160},
                {64, 480, 640, 476, 644, 336, 432},
                {3, 2000, 20, 2800, 28, 3360, 48}};
    struct vision *fourth = glm("glm4v"), *gemma = glm("gemma4");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct vision_plan p = filmed(fourth, rows[i].frames, rows[i].h, rows[i].w, 2);
        assert_int_equal(p.crop_height, rows[i].glm_h);
        assert_int_equal(p.crop_width, rows[i].glm_w);
        assert_int_equal(p.n_crops, (rows[i].frames + 1) / 2);
        p = filmed(gemma, rows[i].frames, rows[i].h, rows[i].w, 2);
        assert_int_equal(p.crop_height, rows[i].gemma_h);
        assert_int_equal(p.crop_width, rows[i].gemma_w);
        assert_int_equal(p.n_crops, rows[i].frames);
        assert_int_equal(p.n_features, p.n_crops * (p.crop_height / 48) * (p.crop_width / 48));
    }
    assert_int_equal(filmed(fourth, 128, 1080, 1920, 2).crop_width, 784);
    vision_free(fourth);
    vision_free(gemma);
}

/* GLM's times are behind frames, Gemma's before them; InternVL's frames are numbered. */
TEST(a_marker_becomes_images)
{
    struct vision *v = glm("glm4v");
    struct vision_plan p = filmed(v, 3, 56, 56, 0.75);
    p.grid_h = p.grid_w = 1;
    assert_true(vision_frames_apart(v) && vision_video_token(v) == vision_token(v));
    assert_string_equal(vision_video_marker(v), "<|video|>");
    assert_string_equal(vision_video_around(v), "<|begin_of_video|><|video|><|end_of_video|>");
    replaced_by(v, &p,
                "<|begin_of_image|><|image|><|end_of_image|>0"
                "<|begin_of_image|><|image|><|end_of_image|>2");
    vision_free(v);
    v = glm("glm46v");
    replaced_by(v, &p,
                "<|begin_of_image|><|image|><|end_of_image|>0.0 seconds"
                "<|begin_of_image|><|image|><|end_of_image|>2.7 seconds");
    vision_free(v);

    v = glm("gemma4");
    p = filmed(v, 2, 1, 70, 0.01);
    assert_int_equal(p.grid_h * p.grid_w, 70);
    p.grid_w = 2;
    replaced_by(
        v, &p, "00:00 <|image><|video|><|video|><image|> 01:40 <|image><|video|><|video|><image|>");
    vision_free(v);

    v = load("{\"model_type\": \"internvl\", \"downsample_ratio\": 0.5, \"vision_config\": "
             "{\"image_size\": [28, 28], \"patch_size\": [14, 14]}}",
             "{\"size\": {\"height\": 28, \"width\": 28}}");
    p = filmed(v, 2, 300, 20, 1);
    assert_true(p.n_crops == 2 && p.crop_width == 28);
    assert_string_equal(vision_video_marker(v), "<video>");
    replaced_by(v, &p, "Frame1: <img><IMG_CONTEXT></img>\nFrame2: <img><IMG_CONTEXT></img>");
    vision_free(v);
}

TEST(smolvlm_says_how_many_frames)
{
    static const struct {
        uint32_t frames;
        const char *first;
    } rows[] = {{1, "one frames from a 0:00:02 "},
                {13, "thirteen frames from a 0:00:26 "},
                {20, "twenty frames from a 0:00:40 "},
                {64, "sixty-four frames from a 0:02:08 "}};
    struct vision *v = load(
        "{\"model_type\": \"smolvlm\", \"scale_factor\": 2, \"vision_config\": {\"image_size\": "
        "32, \"patch_size\": 16}}",
        "{\"max_image_size\": {\"longest_edge\": 32}, \"size\": {\"longest_edge\": 128}, "
        "\"video_sampling\": {\"video_size\": {\"longest_edge\": 60}}}");
    struct vision_plan p = filmed(v, 2, 80, 45, 0.01);
    assert_true(p.n_resizes == 2 && p.resizes[0].width == 34 && p.resizes[0].height == 60);
    assert_true(p.n_crops == 2 && p.rows == 0);
    replaced_by(v, &p,
                "You are provided the following series of two frames from a 0:03:20 [H:MM:SS] "
                "video.\n"
                "\nFrame from 00:00:<fake_token_around_image><global-img><image>"
                "<fake_token_around_image>"
                "\nFrame from 01:40:<fake_token_around_image><global-img><image>"
                "<fake_token_around_image>\n\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf out = BUF_INIT;
        p = filmed(v, rows[i].frames, 32, 32, 0.5);
        vision_expand(v, &p, 0, &out);
        const char *at = strstr(out.p, rows[i].first);
        assert_ptr_equal(at, out.p + strlen("You are provided the following series of "));
        buf_free(&out);
    }
    vision_free(v);
}

/* Features of a frame are those of the file of videos, where there is one. */
TEST(settings_of_videos_are_theirs)
{
    const char *const config =
        "{\"model_type\": \"gemma4\", \"video_token_id\": 5, \"vision_config\": {}}";
    struct err e = ERR_INIT;
    struct vision *v;
    assert_int_equal(load_files(config, "{\"max_soft_tokens\": 280}",
                                "{\"video_processor\": {\"max_soft_tokens\": 140}}", &v, &e),
                     0);
    assert_int_equal(filmed(v, 1, 480, 480, 1).n_features, 121);
    assert_int_equal(planned(v, 480, 480).n_features, 256);
    vision_free(v);
    assert_int_equal(
        load_files(config, NULL, "{\"video_processor\": {\"pooling_kernel_size\": 2}}", &v, &e),
        -1);
    assert_non_null(strstr(e.msg, "pooling_kernel_size"));
    e = (struct err)ERR_INIT;
    assert_int_equal(
        load_files(config, NULL, "{\"video_processor\": {\"image_mean\": 0.5}}", &v, &e), -1);
    assert_non_null(strstr(e.msg, "are not normalised"));
    e = (struct err)ERR_INIT;
    assert_int_equal(load_files("{\"model_type\": \"internvl\", \"vision_config\": {}}",
                                "{\"size\": {\"height\": 448, \"width\": 448}}",
                                "{\"video_processor\": {\"size\": {\"height\": 384, \"width\": "
                                "384}}}",
                                &v, &e),
                     -1);
    assert_non_null(strstr(e.msg, "size must be that of images, 448"));
}

/* Before a frame is decoded: what fits into a plan. */
TEST(the_limit_is_known_early)
{
    static const struct {
        const char *type;
        uint32_t most;
    } rows[] = {{"qwen3_vl", 128}, {"glm46v", 128}, {"gemma4", 64}, {"gemma3", 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct vision *v = glm(rows[i].type);
        assert_int_equal(vision_most_frames(v), rows[i].most);
        vision_free(v);
    }
}

TEST(what_no_model_takes)
{
    struct vision *v = qwen("qwen3_vl");
    struct err e = ERR_INIT;
    refused(v, (struct vision_video){64, 64, 1, 2},
            "A video must have at least 2 frames. Given: 1");
    refused(v, (struct vision_video){64, 64, 129, 2},
            "A video may have at most 128 frames. Given: 129");
    refused(v, (struct vision_video){64, 64, 0, 2},
            "A video may have at most 128 frames. Given: 0");
    refused(v, (struct vision_video){64, 64, 2, 0},
            "A video of 64 x 64 pixels and 0 frames per second cannot be used");
    refused(v, (struct vision_video){64, 64, 2, 1e-9},
            "A video of 64 x 64 pixels and 1e-09 frames per second cannot be used");
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

int main(void) { return tests_run(NULL, NULL); }
