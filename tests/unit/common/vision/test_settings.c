/* Settings of vision models: which files have them, and contradictions between them. */
#include "tests/unit/common/vision/vision_files.h"

TEST(models_of_text_have_none)
{
    struct vision *v;
    struct err e = ERR_INIT;
    assert_int_equal(load_files("{\"model_type\":\"llama\"}", "no JSON", NULL, &v, &e), 0);
    assert_null(v);
    assert_int_equal(load_files("{\"model_type\":\"gemma3\"}", NULL, NULL, &v, &e), 0);
    assert_null(v);
    assert_int_equal(
        load_files("{\"model_type\":\"molmo2\",\"vision_config\":{}}", NULL, NULL, &v, &e), 0);
    assert_null(v);
    assert_int_equal(vision_load("/nowhere", NULL, &v, &e), -1);
    assert_null(v);
}

TEST(one_file_may_hold_both)
{
    struct vision *v;
    struct err e = ERR_INIT;
    assert_int_equal(load_files("{\"model_type\":\"qwen2_vl\",\"vision_config\":{}}", NULL,
                                "{\"image_processor\":{\"min_pixels\":784,\"max_pixels\":784,"
                                "\"resample\":1,\"image_mean\":0.5,\"do_rescale\":false}}",
                                &v, &e),
                     0);
    assert_int_equal(planned(v, 1000, 1000).n_features, 1);
    assert_int_equal(vision_format(v)->filter, VISION_LANCZOS);
    assert_true(vision_format(v)->mean[2] == 0.5f && vision_format(v)->rescale == 1.0);
    vision_free(v);
}

TEST(the_file_for_both_is_read_before_the_older_one)
{
    struct vision *v;
    struct err e = ERR_INIT;
    assert_int_equal(load_files("{\"model_type\":\"qwen2_vl\",\"vision_config\":{}}",
                                "{\"resample\":2}", "{\"image_processor\":{\"resample\":1}}", &v,
                                &e),
                     0);
    assert_int_equal(vision_format(v)->filter, VISION_LANCZOS);
    vision_free(v);
    assert_int_equal(load_files("{\"model_type\":\"qwen2_vl\",\"vision_config\":{}}",
                                "{\"resample\":2}", "{\"image_processor\":null}", &v, &e),
                     0);
    assert_int_equal(vision_format(v)->filter, VISION_BILINEAR);
    vision_free(v);
}

TEST(null_is_false)
{
    struct vision *v = load("{\"model_type\":\"smolvlm\",\"vision_config\":{}}",
                            "{\"do_rescale\":null,\"do_normalize\":0,\"do_image_splitting\":null}");
    assert_true(vision_format(v)->rescale == 1.0 && vision_format(v)->mean[0] == 0.0f);
    assert_int_equal(planned(v, 1000, 1000).n_crops, 1);
    vision_free(v);
    v = load("{\"model_type\":\"smolvlm\",\"vision_config\":{}}", "{\"do_image_splitting\":1}");
    assert_int_equal(planned(v, 1000, 1000).n_crops, 17);
    vision_free(v);
}

TEST(sizes_have_several_forms)
{
#define CLIP_LLAVA                                                                                 \
    "{\"model_type\":\"llava\",\"vision_config\":{\"model_type\":\"clip_vision_model\",\"image_"   \
    "size\":"                                                                                      \
    "28}}"
#define MISTRAL "{\"model_type\":\"mistral3\",\"vision_config\":{\"model_type\":\"pixtral\"}}"
#define GLM_V   "{\"model_type\":\"glm4v\",\"vision_config\":{}}"
    static const struct {
        const char *config, *pixels;
        uint32_t width; /* of a resized image of 400 x 200 */
    } forms[] = {
        {CLIP_LLAVA, "{\"size\":{\"shortest_edge\":40},\"crop_size\":28}", 80},
        {CLIP_LLAVA, "{\"size\":40,\"crop_size\":28}", 80},
        {CLIP_LLAVA, "{\"size\":[28,28]}", 28},
        {CLIP_LLAVA, "{\"image_processor_type\":\"CLIPImageProcessor\",\"do_pad\":true}", 56},
        {MISTRAL, "{\"size\":{\"longest_edge\":112}}", 112},
        {MISTRAL, "{\"size\":{\"height\":112,\"width\":112}}", 112},
        {MISTRAL, "{\"size\":112}", 112},
        {GLM_V, "{\"size\":{\"shortest_edge\":784,\"longest_edge\":37632},\"max_pixels\":784}",
         168},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct vision *v = load(forms[i].config, forms[i].pixels);
        assert_int_equal(planned(v, 400, 200).resizes[0].width, forms[i].width);
        vision_free(v);
    }
}

/* The size of a feature that Pixtral's processor of prompts has, in a file of its own. */
TEST(pixtral_has_one_size_of_features)
{
    static const char *const bad[] = {"{\"patch_size\":8}", "{\"spatial_merge_size\":1}"};
    struct vision *v;
    struct err e = ERR_INIT;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(load_files(MISTRAL, NULL, bad[i], &v, &e), -1);
        assert_non_null(strstr(e.msg, "processor_config.json: patch_size"));
    }
    assert_int_equal(
        load_files(MISTRAL, NULL, "{\"patch_size\":14,\"spatial_merge_size\":2}", &v, &e), 0);
    vision_free(v);
}

TEST(contradictions_are_refused)
{
#define MINICPM     "{\"model_type\":\"minicpmv4_6\",\"vision_config\":{%s}}"
#define MINICPM_OCR "{\"model_type\":\"minicpm_ocr\",\"vision_config\":{%s}}"
#define OVIS        "{\"model_type\":\"ovis2\",\"vision_config\":{\"image_size\":28,\"patch_size\":14,%s}}"
#define PERCEPTION  "{\"model_type\":\"perception_lm\",\"vision_config\":{\"model_args\":{%s}}}"
#define QWEN        "{\"model_type\":\"qwen3_vl\",\"vision_config\":{%s}}"
#define NEXT        "{\"model_type\":\"llava_next\",\"vision_config\":{%s}}"
#define GEMMA       "{\"model_type\":\"gemma3\",\"vision_config\":{%s}}"
#define GEMMA4      "{\"model_type\":\"gemma4\",\"vision_config\":{%s}}"
#define ONEV        "{\"model_type\":\"llava_onevision\",\"vision_config\":{\"model_type\":\"siglip\",%s}"
#define AYA         "{\"model_type\":\"aya_vision\",\"vision_config\":{%s}}"
#define COHERE      "{\"model_type\":\"cohere2_vision\",\"vision_config\":{%s}}"
#define SMOL        "{\"model_type\":\"smolvlm\",\"vision_config\":{%s}}"
#define KIMI        "{\"model_type\":\"kimi_vl\",\"vision_config\":{%s}}"
#define LIGHT       "{\"model_type\":\"lighton_ocr\",\"vision_config\":{\"model_type\":\"pixtral\"%s}}"
#define K25         "{\"model_type\":\"kimi_k25\",\"vision_config\":{%s}}"
#define PADDLE      "{\"model_type\":\"paddleocr_vl\",\"vision_config\":{%s}}"
#define JANUS       "{\"model_type\":\"janus\",\"vision_config\":{%s}}"
#define LFM         "{\"model_type\":\"lfm2_vl\",\"vision_config\":{%s}}"
#define IDEF        "{\"model_type\":\"idefics2\",\"vision_config\":{%s}}"
#define LLAMA       "{\"model_type\":\"llama4\",\"vision_config\":{%s}}"
#define MLLAMA      "{\"model_type\":\"mllama\",\"vision_config\":{%s}}"
#define PALI        "{\"model_type\":\"paligemma\",\"vision_config\":{%s}}"
#define DEEP        "{\"model_type\":\"deepseek_ocr2\",\"vision_config\":{%s}}"
#define MINIMAX     "{\"model_type\":\"minimax_m3_vl\",\"vision_config\":{%s}}"
#define HY_V4       "{\"model_type\":\"hy_v4_vl\",\"vision_config\":{%s}}"
#define DOCLING     "{\"model_type\":\"granite_docling\",\"vision_config\":{%s}}"
#define MUSE        "{\"model_type\":\"muse_glimmer\",\"vision_config\":{%s}}"
#define NEMO        "{\"model_type\":\"nemotron_h_omni\",\"vision_config\":{%s}}"
#define NEMO_TILES  "{\"model_type\":\"NemotronH_Nano_VL_V2\",\"vision_config\":{%s}}"
#define LLAVA                                                                                      \
    "{\"model_type\":\"llava\",\"vision_config\":{\"model_type\":\"clip_vision_model\"%s}}"
#define INTERN "{\"model_type\":\"internvl\",\"vision_config\":{%s}}"
    static const struct {
        const char *config, *tower, *pixels;
    } bad[] = {
        {HY_V4, "", "{\"size\":{\"height\":40,\"width\":40}}"},
        {HY_V4, "", "{\"size\":{\"shortest_edge\":1024}}"},
        {HY_V4, "", "{\"size\":1024}"},
        {DOCLING, "\"scale_factor\":5", NULL},
        {DOCLING, "", "{\"fine_route\":true}"},
        {DOCLING, "", "{\"size\":{\"height\":448,\"width\":448}}"},
        {DOCLING, "", "{\"max_patches\":64}"},
        {DOCLING, "", "{\"min_patches\":4,\"dense_max_patches\":2}"},
        {DOCLING, "", "{\"dense_max_patches\":40,\"dense_max_scale\":\"much\"}"},
        {MUSE, "", "{\"max_image_tokens\":0}"},
        {MUSE, "\"merge_size\":2", "{\"merge_size\":3}"},
        {MUSE, "\"patch_temporal\":2", "{\"temporal_patch_size\":1}"},
        {NEMO, "", "{\"downsample_ratio\":0.25}"},
        {NEMO, "", "{\"patch_size\":14}"},
        {NEMO, "", "{\"max_model_len\":4}"},
        {NEMO, "", "{\"min_num_patches\":0}"},
        {NEMO, "", "{\"norm_mean\":[0.5,0.5]}"},
        {NEMO, "", "{\"norm_std\":[0.5,0,0.5]}"},
        {NEMO, "\"args\":{\"max_num_patches\":-1}", NULL},
        {NEMO_TILES, "\"args\":{\"min_num_patches\":1024}", NULL},
        {NEMO_TILES, "", "{\"max_num_tiles\":64}"},
        {NEMO_TILES, "", "{\"image_size\":448}"},
        {QWEN, "\"patch_size\":0", NULL},
        {QWEN, "\"patch_size\":-16", NULL},
        {QWEN, "\"patch_size\":\"16\"", NULL},
        {QWEN, "\"patch_size\":1e300", NULL},
        {QWEN, "\"patch_size\":16.5", NULL},
        {QWEN, "\"patch_size\":[16,14]", NULL},
        {QWEN, "\"patch_size\":[]", NULL},
        {QWEN, "\"patch_size\":{\"height\":16}", NULL},
        {QWEN, "\"spatial_merge_size\":0", NULL},
        {QWEN, "", "{\"merge_size\":4}"},
        {QWEN, "", "{\"min_pixels\":100,\"max_pixels\":99}"},
        {QWEN, "", "{\"max_pixels\":1e12}"},
        {QWEN, "", "{\"image_std\":[0.5,0,0.5]}"},
        {QWEN, "", "{\"image_mean\":[0.5,0.5]}"},
        {QWEN, "", "{\"image_mean\":[0.5,0.5,1e300]}"},
        {QWEN, "", "{\"rescale_factor\":\"x\"}"},
        {QWEN, "", "{\"resample\":6}"},
        {QWEN, "", "{\"resample\":99}"},
        {QWEN, "", "{\"do_resize\":false}"},
        {QWEN, "", "{\"size\":448}"},
        {QWEN, "", "{\"size\":{\"height\":448,\"width\":448}}"},
        {QWEN, "", "{\"size\":{}}"},
        {QWEN, "", "{\"size\":{\"shortest_edge\":65536}}"},
        {QWEN, "", "{\"size\":{\"longest_edge\":65536},\"max_pixels\":65536}"},
        {QWEN, "", "{\"size\":{\"min_pixels\":65536}}"},
        {PALI, "", "{\"do_center_crop\":true,\"crop_size\":112}"},
        {PALI, "", "{\"do_center_crop\":true}"},
        {DOCLING, "", "{\"do_center_crop\":true}"},
        {QWEN, "", "{\"do_center_crop\":true}"},
        {PALI, "", "{\"do_pad\":true,\"pad_size\":{\"height\":448,\"width\":448}}"},
        {LLAVA, "", "{\"size\":{\"shortest_edge\":336,\"longest_edge\":400}}"},
        {LLAVA, "", "{\"size\":[336,336],\"do_center_crop\":true,\"crop_size\":224}"},
        {QWEN, "", "[1"},
        {PERCEPTION, "", "{\"tile_size\":450}"},
        {PERCEPTION, "", "{\"max_num_tiles\":64}"},
        {PERCEPTION, "\"img_size\":[336,336]", NULL},
        {PERCEPTION, "\"patch_size\":16", "{\"tile_size\":456}"},
        {"{\"model_type\":\"video_llama_3\",\"vision_config\":{%s}}", "", "{\"merge_size\":2}"},
        {OVIS, "\"hidden_stride\":2", "{\"size\":56}"},
        {OVIS, "\"hidden_stride\":3", "{\"size\":28}"},
        {OVIS, "\"hidden_stride\":1", "{\"size\":28,\"max_patches\":64}"},
        {DEEP, "", "{\"size\":{\"height\":1024,\"width\":768}}"},
        {DEEP, "", "{\"tile_size\":100}"},
        {DEEP, "", "{\"min_patches\":7}"},
        {DEEP, "", "{\"max_patches\":64}"},
        {DEEP, "", "{\"background_color\":[127,127]}"},
        {DEEP, "", "{\"background_color\":[127,127,256]}"},
        {DEEP, "\"sam_config\":{\"image_size\":768}", NULL},
        {MINIMAX, "", "{\"merge_size\":4}"},
        {"{\"model_type\":\"glmga\",\"vision_config\":{%s}}", "", "{\"patch_expand_factor\":0}"},
        {"{\"model_type\":\"cosmos3_edge\",\"vision_config\":{%s}}", "",
         "{\"temporal_patch_size\":2}"},
        {MINIMAX, "\"img_token_compression_config\":{\"spatial_merge_size\":9}", NULL},
        {MINIMAX, "", "{\"min_pixels\":100,\"max_pixels\":99}"},
        {MINICPM, "", "{\"scale_resolution\":0}"},
        {MINICPM, "", "{\"max_slice_nums\":64}"},
        {MINICPM, "\"patch_size\":14", "{\"patch_size\":16}"},
        {MINICPM, "", "{\"downsample_mode\":\"4x\"}"},
        {MINICPM_OCR, "", "{\"downsample_mode\":\"16x\"}"},
        {"{\"model_type\":\"step3p7\",\"vision_config\":{%s}}", "", "{\"patch_size\":500}"},
        {"{\"model_type\":\"step3p7\",\"vision_config\":{%s}}", "",
         "{\"size\":{\"height\":720,\"width\":720}}"},
        {"{\"model_type\":\"step3p7\",\"vision_config\":{%s}}", "\"patch_size\":16", NULL},
        {"{\"model_type\":\"minicpmv4_7\",\"slice_start_id\":1,\"vision_config\":{%s}}", "", NULL},
        {MINICPM_OCR, "", "{\"small_image_upsize\":\"adaptive\"}"},
        {NEXT, "\"image_size\":337", NULL},
        {NEXT, "", "{\"image_grid_pinpoints\":[]}"},
        {NEXT, "", "{\"image_grid_pinpoints\":[[336]]}"},
        {NEXT, "", "{\"image_grid_pinpoints\":[[336,0]]}"},
        {NEXT, "", "{\"image_grid_pinpoints\":[[336,500]]}"},
        {NEXT, "", "{\"image_grid_pinpoints\":[[3360,3360]]}"},
        {NEXT, "", "{\"image_grid_pinpoints\":7}"},
        {NEXT, "", "{\"crop_size\":224}"},
        {NEXT, "", "{\"size\":{\"max_height\":336,\"max_width\":336}}"},
        {NEXT, "", "{\"size\":{\"height\":336,\"width\":336},\"crop_size\":224}"},
        {CLIP_LLAVA, "", "{\"do_center_crop\":null}"},
        {MISTRAL, "", "{\"size\":{\"shortest_edge\":336}}"},
        {MISTRAL, "", "{\"size\":{\"height\":336,\"width\":224}}"},
        {MISTRAL, "", "{\"size\":14}"},
        {GEMMA, "", "{\"size\":{\"height\":896,\"width\":448}}"},
        {GEMMA, "\"image_size\":56", NULL},
        {GEMMA, "", "{\"pan_and_scan_min_crop_size\":0}"},
        {GEMMA, "", "{\"pan_and_scan_max_num_crops\":100}"},
        {GEMMA4, "", "{\"image_mean\":[0.5,0.5,0.5]}"},
        {GEMMA4, "", "{\"max_soft_tokens\":0}"},
        {GEMMA4, "\"pooling_kernel_size\":2", "{\"pooling_kernel_size\":3}"},
        {GEMMA4, "\"patch_size\":14", "{\"patch_size\":16}"},
        {ONEV ",\"vision_aspect_ratio\":\"pad\"}", "\"image_size\":384", NULL},
        {ONEV ",\"vision_aspect_ratio\":\"anyres_max_0\"}", "\"image_size\":384", NULL},
        {ONEV "}", "\"image_size\":384", "{\"image_grid_pinpoints\":[[384,500]]}"},
        {ONEV ",\"vision_feature_select_strategy\":\"default\"}", "\"image_size\":384", NULL},
        {AYA, "\"image_size\":365", NULL},
        {AYA, "\"image_size\":364", "{\"min_patches\":9,\"max_patches\":3}"},
        {COHERE, "\"image_size\":500", NULL},
        {COHERE, "", "{\"max_patches\":0}"},
        {SMOL, "\"patch_size\":14", NULL},
        {SMOL, "", "{\"size\":{\"longest_edge\":0}}"},
        {SMOL, "", "{\"size\":{\"height\":364,\"width\":364}}"},
        {SMOL, "", "{\"size\":364}"},
        {INTERN, "", "{\"min_patches\":9,\"max_patches\":3}"},
        {INTERN, "", "{\"max_patches\":1000000}"},
        {KIMI, "", "{}"}, /* pictures would be cropped */
        {KIMI, "", "{\"pad_input\":false}"},
        {KIMI, "", "{\"pad_input\":true,\"in_token_limit\":0}"},
        {KIMI, "", "{\"pad_input\":true,\"merge_kernel_size\":[4,4]}"},
        {KIMI, "\"merge_kernel_size\":[2,1]", "{\"pad_input\":true}"},
        {LIGHT, ",\"patch_size\":14", "{\"patch_size\":16}"},
        {LIGHT, ",\"patch_size\":14", "{\"size\":{\"longest_edge\":14}}"},
        {K25, "", "{\"media_proc_cfg\":{\"merge_kernel_size\":4}}"},
        {K25, "", "{\"media_proc_cfg\":{\"in_patch_limit\":0}}"},
        {K25, "", "{\"size\":{\"max_height\":512,\"max_width\":256}}"},
        {K25, "", "{\"patch_size\":16}"},
        {PADDLE, "", "{\"merge_size\":4}"},
        {PADDLE, "", "{\"temporal_patch_size\":2}"},
        {PADDLE, "", "{\"min_pixels\":100,\"max_pixels\":99}"},
        {JANUS, "\"image_size\":384", "{\"size\":{\"height\":224,\"width\":224}}"},
        {JANUS, "\"image_size\":384,\"patch_size\":14", NULL},
        {JANUS, "", "{\"min_size\":385}"},
        {JANUS, "\"image_size\":8,\"patch_size\":8", NULL}, /* min_size is 14 */
        {JANUS, "", "{\"do_pad\":false}"},
        {LFM, "\"patch_size\":14", "{\"encoder_patch_size\":16}"},
        {LFM, "", "{\"downsample_factor\":4}"},
        {LFM, "", "{\"tile_size\":500}"},
        {LFM, "", "{\"min_tiles\":1}"}, /* transformers then miscounts */
        {LFM, "", "{\"min_tiles\":9,\"max_tiles\":8}"},
        {LFM, "", "{\"min_image_tokens\":300}"},
        {IDEF, "\"patch_size\":14,\"image_size\":966", NULL}, /* of 980 pixels */
        {IDEF, "\"patch_size\":14,\"image_size\":980",
         "{\"size\":{\"shortest_edge\":7,\"longest_edge\":980}}"},
        {IDEF, "\"patch_size\":14,\"image_size\":980",
         "{\"size\":{\"shortest_edge\":990,\"longest_edge\":980}}"},
        {IDEF, "\"patch_size\":14,\"image_size\":980", "{\"size\":{\"shortest_edge\":378}}"},
        {LLAMA, "\"image_size\":448", NULL},
        {LLAMA, "\"image_size\":336,\"pixel_shuffle_ratio\":0.4", NULL},
        {LLAMA, "\"image_size\":336", "{\"max_patches\":64}"},
        {MLLAMA, "\"image_size\":224", "{\"size\":{\"height\":448,\"width\":448}}"},
        {MLLAMA, "\"image_size\":225,\"patch_size\":14",
         "{\"size\":{\"height\":225,\"width\":225}}"},
        {MLLAMA, "\"image_size\":224,\"max_num_tiles\":4", "{\"max_image_tiles\":5}"},
        {MLLAMA, "\"image_size\":224,\"max_num_tiles\":17", "{\"max_image_tiles\":17}"},
        {PALI, "", "{\"size\":{\"height\":448,\"width\":448}}"},
        {PALI, "", "{\"image_seq_length\":255}"},
        {PALI, "\"image_size\":7", NULL},
        {PALI, "\"patch_size\":16,\"image_size\":225", NULL},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char config[256];
        const char *at = strstr(bad[i].config, "%s"), *end = bad[i].config + strlen(bad[i].config);
        at = at ? at : end;
        struct vision *v;
        struct err e = ERR_INIT;
        snprintf(config, sizeof(config), "%.*s%s%s", (int)(at - bad[i].config), bad[i].config,
                 bad[i].tower, at < end ? at + 2 : end);
        if (load_files(config, bad[i].pixels, NULL, &v, &e) == 0)
            fail_msg("accepted: %s %s", config, bad[i].pixels ? bad[i].pixels : "");
        assert_null(v);
        assert_int_equal(e.kind, ERR_VALIDATION);
        assert_true(e.msg[0] && !strchr(e.msg, '\n'));
    }
}

int main(void) { return tests_run(NULL, NULL); }
