/* Plans, placeholders and positions by the families' own settings. The numbers of tokens are those
 * of the image processors of transformers 5.23. */
#include "common/vision/vision.h"
#include "tests/unit/common/vision/vision_files.h"

/* ---------------------------------------------------------------- tokens */

enum { COUNTED = 8, NO_PICTURE = 0 };
static const struct {
    const char *type, *tower;
} counted[COUNTED] = {{"qwen2_5_vl", "qwen2_5_vl"},
                      {"qwen3_vl", "qwen3_vl"},
                      {"llava_next", "clip_vision_model"},
                      {"mistral3", "pixtral"},
                      {"llava", "pixtral"},
                      {"idefics3", "idefics3_vision"},
                      {"smolvlm", "smolvlm_vision"},
                      {"internvl", "internvl_vision"}};
static const struct {
    uint32_t width, height, tokens[COUNTED]; /* NO_PICTURE: refused */
} pictures[] = {
    {1, 1, {4, 64, 1176, 1, 1, 2873, 1088, 256}},
    {2, 1, {6, 72, 1752, 1, 1, 1521, 576, 768}},
    {640, 480, {391, 300, 2340, 414, 1200, 2197, 832, 3328}},
    {1280, 853, {1380, 1080, 2144, 1426, 2752, 2197, 832, 1792}},
    {3024, 4032, {15552, 11844, 2352, 2310, 3072, 2197, 832, 3328}},
    {84, 42, {6, 72, 1752, 6, 18, 1521, 576, 768}}, /* halves: 42 is 1.5 times 28 */
    {42, 98, {8, 78, 840, 8, 21, 1521, 576, 2816}},
    {1000, 5, {29, 114, 576, 36, 63, 845, 320, 3328}},
    {16384, 100, {2340, 1536, 576, 55, 64, 845, 320, 3328}},
    {336, 336, {144, 100, 1176, 144, 441, 2873, 1088, 256}},
    {337, 336, {144, 110, 1176, 156, 462, 2873, 1088, 256}},
    {673, 336, {288, 210, 1752, 300, 903, 1521, 576, 768}},
    {500, 501, {324, 256, 2928, 324, 1024, 2873, 1088, 256}},
    {4096, 4096, {16384, 16384, 2928, 3025, 4096, 2873, 1088, 2560}},
    {8000, 80, {858, 500, 576, 55, 64, 845, 320, 3328}},
    {48, 16380, {NO_PICTURE, NO_PICTURE, 648, 55, 64, 845, 320, 3328}},
};

TEST(pictures_have_as_many_tokens_as_in_transformers)
{
    for (int i = 0; i < COUNTED; i++) {
        struct vision *v = family(counted[i].type, counted[i].tower);
        assert_string_equal(vision_family(v), counted[i].type);
        for (size_t k = 0; k < sizeof(pictures) / sizeof(pictures[0]); k++) {
            struct vision_plan p;
            struct err e = ERR_INIT;
            const uint32_t w = pictures[k].width, h = pictures[k].height;
            const uint32_t want = pictures[k].tokens[i];
            const int rc = vision_plan(v, w, h, &p, &e);
            if ((rc == 0) != (want != NO_PICTURE) || (rc == 0 && p.n_features != want))
                fail_msg("%s: %u x %u has %u tokens instead of %u %s", counted[i].type, w, h,
                         p.n_features, want, e.msg);
        }
        vision_free(v);
    }
}

/* ---------------------------------------------------------------- what is written */

TEST(a_marker_becomes_the_familys_placeholders)
{
    struct vision *v = load("{\"model_type\":\"qwen3_vl\",\"vision_config\":{}}",
                            "{\"size\":{\"shortest_edge\":1,\"longest_edge\":4096}}");
    assert_string_equal(vision_marker_around(v), "<|vision_start|><|image_pad|><|vision_end|>");
    assert_int_equal(vision_token(v), 151655);
    assert_true(vision_three_positions(v) && !vision_two_way(v));
    expands_to(v, 64, 32, "<|image_pad|><|image_pad|>");
    vision_free(v);

    v = load("{\"model_type\":\"llava\",\"vision_config\":{\"model_type\":\"pixtral\"}}", NULL);
    assert_string_equal(vision_marker(v), "[IMG]");
    expands_to(v, 32, 20, "[IMG][IMG][IMG_BREAK][IMG][IMG][IMG_END]");
    vision_free(v);

    static const char *const lighton[] = {
        "{\"model_type\":\"lighton_ocr\",\"vision_config\":{\"model_type\":\"pixtral\","
        "\"patch_size\":14}}",
        "{\"model_type\":\"mistral3\",\"architectures\":[\"LightOnOCRForConditionalGeneration\"],"
        "\"vision_config\":{\"model_type\":\"pixtral\",\"patch_size\":14}}"};
    for (int i = 0; i < 2; i++) {
        struct vision_plan none;
        struct err e = ERR_INIT;
        v = load(lighton[i], "{\"patch_size\":14}");
        expands_to(v, 42, 70, "<|image_pad|><|image_pad|>"); /* of 3 x 5 patches */
        assert_int_equal(planned(v, 42, 70).crop_width, 42);
        assert_int_equal(vision_plan(v, 14, 70, &none, &e), -1);
        vision_free(v);
    }

    v = load("{\"model_type\":\"qianfan_ocr\",\"vision_config\":{\"image_size\":[28,28]}}",
             "{\"max_patches\":2}");
    assert_string_equal(vision_marker(v), "<image>");
    expands_to(v, 20, 45, "<img><IMG_CONTEXT><IMG_CONTEXT><IMG_CONTEXT></img>");
    vision_free(v);

    v = load("{\"model_type\":\"glmga\",\"vision_config\":{}}", "{\"patch_expand_factor\":3}");
    assert_string_equal(vision_marker(v), "<|image|>");
    assert_int_equal(planned(v, 300, 250).crop_width, 336); /* 4 x 84 pixels */
    assert_int_equal(planned(v, 300, 250).grid_h, 9);
    vision_free(v);

    v = load("{\"model_type\":\"glm5_next\",\"vision_config\":{}}",
             "{\"min_image_tokens\":2,\"max_image_tokens\":3}");
    expands_to(v, 30, 70, "<|image|><|image|><|image|>");
    assert_int_equal(planned(v, 30, 70).resizes[0].width, 28); /* of 3 x 1 features, at most */
    assert_int_equal(planned(v, 65535, 1).resizes[0].height, 1);
    assert_int_equal(planned(v, 1, 1).n_features, 1);
    assert_int_equal(planned(v, 65535, 65535).n_features, 1);
    assert_false(vision_three_positions(v));
    vision_free(v);

    v = load("{\"model_type\":\"cosmos3_edge\",\"vision_config\":{}}",
             "{\"size\":{\"shortest_edge\":1024}}");
    expands_to(v, 20, 20, "<|image_pad|>");
    assert_string_equal(vision_marker_around(v), "<|vision_start|><|image_pad|><|vision_end|>");
    assert_true(vision_three_positions(v));
    vision_free(v);

    v = load(
        "{\"model_type\":\"minimax_m3_vl\",\"vision_config\":{\"img_token_compression_config\":"
        "{\"spatial_merge_size\":1}}}",
        "{\"size\":[672,672]}");
    assert_string_equal(vision_marker_around(v), "]<]image[>[");
    expands_to(v, 42, 56,
               "]<]start of image[>[]<]image[>[]<]image[>[]<]image[>[]<]image[>[]<]image[>["
               "]<]image[>[]<]image[>[]<]image[>[]<]image[>[]<]image[>[]<]image[>[]<]image[>["
               "]<]image[>[]<]image[>[]<]image[>[]<]image[>[]<]image[>[]<]image[>[]<]image[>["
               "]<]image[>[]<]end of image[>[");
    vision_free(v);

    v = load("{\"model_type\":\"blip-2\",\"num_query_tokens\":3,\"image_token_index\":50265,"
             "\"vision_config\":{},\"text_config\":{\"model_type\":\"opt\"}}",
             NULL);
    expands_to(v, 20, 1000, "<image><image><image>");
    assert_string_equal(vision_frame(v).behind, "</s>");
    assert_true(vision_frame(v).bare);
    vision_free(v);
    v = load("{\"model_type\":\"blip-2\",\"num_query_tokens\":2,\"image_token_index\":32100,"
             "\"vision_config\":{},\"text_config\":{\"model_type\":\"t5\"}}",
             NULL);
    expands_to(v, 20, 1000, "<image><image>");
    assert_string_equal(vision_frame(v).behind, "");
    assert_string_equal(vision_frame(v).end, "</s>");
    vision_free(v);

    v = load("{\"model_type\":\"aria\",\"vision_config\":{\"image_size\":980,\"patch_size\":14},"
             "\"projector_patch_to_query_dict\":{\"1225\":2,\"4900\":3}}",
             NULL);
    expands_to(v, 20, 1000, "<|img|><|img|><|img|>");
    assert_int_equal(planned(v, 20, 1000).crops[0].width, 336);
    assert_int_equal(planned(v, 1000, 500).crops[0].height, 490);
    vision_free(v);

    v = load("{\"model_type\":\"janus\",\"vision_config\":{\"image_size\":32}}", NULL);
    expands_to(v, 20, 1000,
               "<begin_of_image><image_placeholder><image_placeholder><image_placeholder>"
               "<image_placeholder><end_of_image>");
    assert_int_equal(planned(v, 20, 1000).resizes[0].width, 14);
    assert_int_equal(planned(v, 20, 1000).crops[0].x, -9);
    assert_int_equal(vision_format(v)->outside[0], 122);
    vision_free(v);

    v = load("{\"model_type\":\"gemma3\",\"mm_tokens_per_image\":1,\"vision_config\":"
             "{\"image_size\":28}}",
             "{\"size\":{\"height\":28,\"width\":28},\"do_pan_and_scan\":true,"
             "\"pan_and_scan_min_crop_size\":20}");
#define ONE "\n\n<start_of_image><image_soft_token><end_of_image>\n\n"
    assert_true(vision_two_way(v));
    assert_string_equal(vision_marker_around(v), "<start_of_image>");
    expands_to(v, 30, 30, ONE);
    expands_to(v, 30, 61,
               "Here is the original image " ONE
               " and here are some crops to help you see better " ONE " " ONE);
    vision_free(v);

#define TILE "<fake_token_around_image>"
    v = load("{\"model_type\":\"smolvlm\",\"vision_config\":{\"image_size\":64}}",
             "{\"size\":{\"longest_edge\":128},\"max_image_size\":{\"longest_edge\":64}}");
    expands_to(v, 60, 30,
               TILE "<row_1_col_1><image>" TILE "<row_1_col_2><image>\n\n" TILE
                    "<global-img><image>" TILE);
    vision_free(v);
    v = load("{\"model_type\":\"smolvlm\",\"vision_config\":{\"image_size\":64}}",
             "{\"do_image_splitting\":false}");
    expands_to(v, 60, 30, TILE "<global-img><image>" TILE);
    vision_free(v);

    v = load("{\"model_type\":\"internvl\",\"vision_config\":{\"image_size\":[28,28]}}",
             "{\"max_patches\":2}");
    expands_to(v, 20, 20, "<img><IMG_CONTEXT></img>");
    expands_to(v, 20, 45, "<img><IMG_CONTEXT><IMG_CONTEXT><IMG_CONTEXT></img>");
    assert_string_equal(vision_frame(v).behind, "");
    assert_false(vision_frame(v).bare || vision_prefix(v));
    vision_free(v);

    v = load("{\"model_type\":\"gemma4\",\"vision_config\":{\"patch_size\":4},\"text_config\":"
             "{\"use_bidirectional_attention\":\"vision\"}}",
             "{\"patch_size\":4,\"max_soft_tokens\":2,\"do_normalize\":false}");
    assert_true(vision_two_way(v) && !vision_prefix(v));
    assert_string_equal(vision_marker_around(v), "<|image|>");
    expands_to(v, 40, 20, "<|image><|image|><|image|><image|>");
    expands_to(v, 4000, 20, "<|image><|image|><|image|><image|>"); /* a line of features */
    vision_free(v);
    v = load("{\"model_type\":\"gemma4\",\"vision_config\":{},\"text_config\":{}}", NULL);
    assert_false(vision_two_way(v)); /* the small ones */
    vision_free(v);

    v = load("{\"model_type\":\"aya_vision\",\"vision_config\":{\"image_size\":28}}",
             "{\"size\":{\"height\":28,\"width\":28},\"max_patches\":2}");
    assert_string_equal(vision_marker(v), "<image>");
    expands_to(v, 20, 20, "<|START_OF_IMG|>TILE_GLOBAL<|IMG_PATCH|><|END_OF_IMG|>");
    expands_to(v, 20, 45,
               "<|START_OF_IMG|>TILE_1<|IMG_PATCH|>TILE_2<|IMG_PATCH|>"
               "TILE_GLOBAL<|IMG_PATCH|><|END_OF_IMG|>");
    vision_free(v);

    v = load("{\"model_type\":\"cohere2_vision\",\"vision_config\":{\"image_size\":32}}",
             "{\"size\":{\"height\":32,\"width\":32},\"max_patches\":2}");
    expands_to(v, 20, 20, "<|START_OF_IMG|><|IMG_PATCH|><|IMG_LINE_BREAK|><|END_OF_IMG|>");
    expands_to(v, 20, 60,
               "<|START_OF_IMG|><|IMG_PATCH|><|IMG_LINE_BREAK|><|IMG_PATCH|><|IMG_LINE_BREAK|>"
               "<|IMG_PATCH|><|IMG_LINE_BREAK|><|END_OF_IMG|>");
    vision_free(v);

    v = load("{\"model_type\":\"llama4\",\"vision_config\":{\"image_size\":28}}",
             "{\"size\":{\"height\":28,\"width\":28},\"max_patches\":4}");
    assert_string_equal(vision_marker(v), "<|image|>");
    expands_to(v, 20, 20, "<|image_start|><|image|><|patch|><|image_end|>");
    expands_to(v, 56, 56,
               "<|image_start|><|patch|><|tile_x_separator|><|patch|><|tile_y_separator|><|patch|>"
               "<|tile_x_separator|><|patch|><|tile_y_separator|><|image|><|patch|><|image_end|>");
    vision_free(v);

    v = load("{\"model_type\":\"mllama\",\"vision_config\":{\"image_size\":28}}",
             "{\"size\":{\"height\":28,\"width\":28}}");
    assert_true(vision_crosses(v));
    expands_to(v, 20, 20, "<|image|>");
    expands_to(v, 56, 56, "<|image|>");
    vision_free(v);

    v = load("{\"model_type\":\"paligemma\",\"vision_config\":{\"image_size\":28}}", NULL);
    assert_false(vision_crosses(v));
    expands_to(v, 20, 45, "<image><image><image><image>");
    assert_string_equal(vision_frame(v).behind, "<bos>");
    assert_string_equal(vision_frame(v).end, "\n");
    assert_true(vision_frame(v).bare && vision_prefix(v) && vision_two_way(v));
    vision_free(v);
}

/* ---------------------------------------------------------------- plans */

TEST(llava_shows_the_middle)
{
    struct vision *v = family("llava", "clip_vision_model");
    const struct vision_plan p = planned(v, 1000, 500), strip = planned(v, 65535, 1);
    assert_int_equal(p.n_features, 576);
    assert_int_equal(p.resizes[0].width, 672);
    assert_int_equal(p.resizes[0].height, 336);
    assert_int_equal(p.crops[0].x, 168);
    assert_int_equal(p.crops[0].y, 0);
    assert_int_equal(strip.resizes[0].width, 336 * 65535);
    assert_int_equal(strip.crops[0].x, (336 * 65535 - 336) / 2);
    vision_free(v);
}

TEST(llava_next_pads_and_unpads)
{
    struct vision *v = family("llava_next", "clip_vision_model");
    const struct vision_plan p = planned(v, 1000, 400); /* 840 x 336 in 1008 x 336 */
    assert_int_equal(p.rows, 1);
    assert_int_equal(p.cols, 3);
    assert_int_equal(p.resizes[1].width, 840);
    assert_int_equal(p.resizes[1].height, 336);
    assert_int_equal(p.crops[1].x, -84);
    assert_int_equal(p.crops[2].x, 336 - 84);
    assert_int_equal(p.crops[2].y, 0);
    assert_int_equal(p.grid_h, 24);
    assert_int_equal(p.grid_y, 0);
    assert_int_equal(p.grid_x, 6);
    assert_int_equal(p.grid_w, 60);
    vision_free(v);
}

TEST(idefics_resizes_what_it_resized)
{
    struct vision *v = family("idefics3", "");
    const struct vision_plan p = planned(v, 1280, 853);
    assert_int_equal(p.n_resizes, 3);
    assert_int_equal(p.resizes[0].of, -1);
    assert_int_equal(p.resizes[1].of, 0);
    assert_int_equal(p.resizes[2].of, 1);
    assert_int_equal(p.resizes[0].height, 970);
    assert_int_equal(p.resizes[1].height, 1092);
    assert_int_equal(p.rows * p.cols + 1, p.n_crops);
    assert_int_equal(p.crops[p.n_crops - 1].of, 2);
    vision_free(v);
}

TEST(no_size_is_beyond_the_bounds)
{
    static const uint32_t sides[] = {1, 2, 3, 27, 28, 336, 1000, 16384, VISION_MAX_SIDE};
    enum { N = sizeof(sides) / sizeof(sides[0]) };
    for (int i = 0; i < COUNTED; i++) {
        struct vision *v = family(counted[i].type, counted[i].tower);
        struct vision_plan p;
        struct err e = ERR_INIT;
        for (int k = 0; k < N * N; k++)
            if (vision_plan(v, sides[k / N], sides[k % N], &p, &e) == 0) {
                assert_true(p.n_crops > 0 && p.n_crops <= VISION_MAX_CROPS && p.n_features > 0);
                for (uint32_t r = 0; r < p.n_resizes; r++)
                    assert_true(p.resizes[r].width > 0 && p.resizes[r].height > 0);
            } else
                assert_int_equal(e.kind, ERR_VALIDATION);
        assert_int_equal(vision_plan(v, 0, 5, &p, &e), -1);
        assert_int_equal(vision_plan(v, 5, VISION_MAX_SIDE + 1, &p, &e), -1);
        assert_int_equal(vision_plan(v, UINT32_MAX, UINT32_MAX, &p, &e), -1);
        vision_free(v);
    }
}

/* ---------------------------------------------------------------- positions */

/* As transformers' processor writes them. */
TEST(tasks_of_florence_become_sentences)
{
    static const char *const pairs[][2] = {
        {"<OD>", "Locate the objects with category name in the image."},
        {"<REGION_TO_OCR> <loc_1><loc_2>\n", "What text is in the region <loc_1><loc_2>?"},
        {"a<OPEN_VOCABULARY_DETECTION>cat", "Locate acat in the image."},
        {"<CAPTION_TO_PHRASE_GROUNDING>", "Locate the phrases in the caption: "},
        {"What is that?", "What is that?"},
        {"", ""}};
    struct vision *v =
        load("{\"model_type\":\"florence2\",\"vision_config\":{}}", "{\"image_seq_length\":577}");
    struct err e = ERR_INIT;
    assert_int_equal(planned(v, 30, 40).n_features, 577);
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct buf out = BUF_INIT;
        assert_int_equal(vision_text(v, pairs[i][0], strlen(pairs[i][0]), &out, &e), 0);
        assert_string_equal(out.p ? out.p : "", pairs[i][1]);
        buf_free(&out);
    }
    struct buf out = BUF_INIT;
    assert_int_equal(vision_text(v, "<OD> cats", 9, &out, &e), -1);
    assert_non_null(strstr(e.msg, "<OD>"));
    buf_free(&out);
    vision_free(v);
}

/* Idefics 2: 11 tokens stand around and between the ten parts of two images side by side, and one
 * more before an image behind a text. */
TEST(one_token_stands_between_images)
{
    static const char fake[] = "<fake_token_around_image>";
    struct vision *v = load("{\"model_type\":\"idefics2\",\"perceiver_config\":"
                            "{\"resampler_n_latents\":2},\"vision_config\":"
                            "{\"patch_size\":14,\"image_size\":980}}",
                            "{\"do_image_splitting\":true}");
    const struct vision_plan p = planned(v, 201, 2001);
    struct buf out = BUF_INIT;
    uint32_t n = 0, images = 0;
    assert_int_equal(p.n_crops, 5);
    assert_int_equal(p.n_features, 10);
    assert_int_equal(p.resizes[1].cut.width, 101); /* the quarters differ by a pixel */
    assert_int_equal(p.resizes[4].height, 980);
    assert_int_equal(vision_crop_width(&p, 4), 378);
    vision_expand(v, &p, 0, &out);
    vision_expand(v, &p, 0, &out);
    buf_str(&out, "text");
    vision_expand(v, &p, 0, &out);
    for (const char *at = out.p; (at = strstr(at, fake)); at++)
        n++;
    for (const char *at = out.p; (at = strstr(at, "<image>")); at++)
        images++;
    assert_int_equal(n, 11 + 6);
    assert_int_equal(images, 30);
    assert_null(strstr(out.p, "<fake_token_around_image><fake_token_around_image>"));
    struct vision_plan none;
    struct err e = ERR_INIT;
    assert_int_equal(vision_plan(v, 1, 50, &none, &e), -1);
    assert_int_equal(e.kind, ERR_VALIDATION);
    buf_free(&out);
    vision_free(v);
}

/* "full" keeps the class token of CLIP, which is a feature before those of patches. */
TEST(llava_may_keep_the_class_token)
{
    struct vision *v =
        load("{\"model_type\":\"llava\",\"vision_feature_select_strategy\":\"full\","
             "\"vision_config\":{\"model_type\":\"clip_vision_model\",\"image_size\":"
             "28,\"patch_size\":14}}",
             "{\"size\":28,\"crop_size\":28}");
    const struct vision_plan p = planned(v, 50, 60);
    assert_int_equal(p.n_features, 5);
    vision_free(v);
}

/* What image processors of transformers 5.24 have for keys that their file lacks. */
TEST(keys_that_a_file_lacks_have_transformers_defaults)
{
    static const struct {
        const char *config, *pixels; /* NULL: no file; then as published */
        enum vision_filter filter;
        float mean;
        uint32_t features; /* of 2000 x 1500 pixels */
    } rows[] = {
        {"{\"model_type\":\"qwen2_5_vl\",\"vision_config\":{}}", "{}", VISION_BICUBIC, 0.48145466F,
         1230},
        {"{\"model_type\":\"qwen2_5_vl\",\"vision_config\":{}}", NULL, VISION_BICUBIC, 0.48145466F,
         3834},
        {"{\"model_type\":\"qwen3_vl\",\"vision_config\":{}}", "{}", VISION_BICUBIC, 0.48145466F,
         972},
        {"{\"model_type\":\"qwen3_vl\",\"vision_config\":{}}", NULL, VISION_BICUBIC, 0.5F, 2914},
        {"{\"model_type\":\"gemma3n\",\"vision_config\":{}}", "{\"size\":768}", VISION_BICUBIC,
         0.5F, 256},
        {"{\"model_type\":\"gemma3n\",\"vision_config\":{}}", NULL, VISION_BILINEAR, 0.5F, 256},
        {"{\"model_type\":\"internvl\",\"vision_config\":{}}", "{\"size\":448}", VISION_BICUBIC,
         0.48145466F, 3328},
        {"{\"model_type\":\"internvl\",\"vision_config\":{}}", NULL, VISION_BICUBIC, 0.485F, 3328},
        {"{\"model_type\":\"aya_vision\",\"vision_config\":{\"model_type\":\"siglip_vision_model\","
         "\"image_size\":364}}",
         "{\"crop_to_patches\":false}", VISION_BICUBIC, 0.48145466F,
         2197}, /* it cuts all the same */
        {"{\"model_type\":\"florence2\",\"vision_config\":{}}", "{\"size\":768}", VISION_BICUBIC,
         0.48145466F, 577},
        {"{\"model_type\":\"janus\",\"vision_config\":{}}", "{\"do_normalize\":false}",
         VISION_BICUBIC, 0, 576},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct vision *v = load(rows[i].config, rows[i].pixels);
        const struct vision_format *f = vision_format(v);
        const struct vision_plan p = planned(v, 2000, 1500);
        if (f->filter != rows[i].filter || f->mean[0] != rows[i].mean ||
            p.n_features != rows[i].features)
            fail_msg("%s %s: filter %d, mean %f, %u features", rows[i].config, rows[i].pixels,
                     f->filter, f->mean[0], p.n_features);
        if (strcmp(vision_family(v), "janus") ==
            0) /* CLIP's mean, although nothing is subtracted */
            assert_int_equal(f->outside[0], 122);
        vision_free(v);
    }
}

int main(void) { return tests_run(NULL, NULL); }
