/* What towers refuse: values of config.json that change what they compute, by name. */
#include "model-server/encoder/encoder_spec.h"
#include "tests/vision_folder.h"

static int configure(const char *config, struct encoder_spec *s, struct err *e)
{
    const struct encoder_family *family;
    struct vision_folder d;
    char path[128];
    vision_folder_make(&d);
    vision_write(&d, "config.json", config);
    snprintf(path, sizeof(path), "%s/config.json", d.path);
    *e = (struct err)ERR_INIT;
    int rc = encoder_configure(path, &family, s, e);
    vision_folder_remove(&d);
    assert_true(rc || family);
    return rc;
}

#define LLAMA                                                                                      \
    "{\"model_type\":\"llama4\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"           \
    "{\"patch_size\":14,\"image_size\":336,\"hidden_size\":64,\"num_attention_heads\":4,"          \
    "\"intermediate_size\":256,\"vision_output_dim\":32,\"projector_input_dim\":32,"               \
    "\"projector_output_dim\":32%s}}"
#define PALI                                                                                       \
    "{\"model_type\":\"paligemma\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"        \
    "{\"patch_size\":14,\"hidden_size\":64,\"num_attention_heads\":4,\"projection_dim\":64%s}}"

#define GEMMA_3N                                                                                   \
    "{\"model_type\":\"gemma3n\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"          \
    "{\"architecture\":\"mobilenetv5_300m_enc\",\"hidden_size\":2048%s}}"
#define FAST                                                                                       \
    "{\"model_type\":\"fast_vlm\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"         \
    "{\"model_args\":{\"inference_mode\":true%s}}}"
#define GOT                                                                                        \
    "{\"model_type\":\"got_ocr2\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"         \
    "{\"hidden_size\":768%s}}"
#define GEMMA                                                                                      \
    "{\"model_type\":\"gemma4\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"           \
    "{\"patch_size\":16,\"hidden_size\":64,\"num_attention_heads\":4,\"head_dim\":16%s}}"
#define GLM                                                                                        \
    "{\"model_type\":\"glm4v\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"            \
    "{\"patch_size\":14,\"hidden_size\":64,\"num_heads\":4,\"out_hidden_size\":64%s}}"
#define GLM_OCR                                                                                    \
    "{\"model_type\":\"glm_ocr\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"          \
    "{\"patch_size\":14,\"hidden_size\":64,\"num_heads\":4,\"out_hidden_size\":64%s}}"
#define GLM_5                                                                                      \
    "{\"model_type\":\"glm5_next\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"        \
    "{\"patch_size\":14,\"hidden_size\":64,\"num_heads\":4,\"out_hidden_size\":64%s}}"
#define LIGHTON                                                                                    \
    "{\"model_type\":\"lighton_ocr\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"      \
    "{\"model_type\":\"pixtral\",\"patch_size\":14,\"hidden_size\":64,"                            \
    "\"num_attention_heads\":4%s}}"
#define KIMI                                                                                       \
    "{\"model_type\":\"kimi_vl\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"          \
    "{\"patch_size\":14,\"hidden_size\":64,\"num_attention_heads\":4%s}}"
#define K25                                                                                        \
    "{\"model_type\":\"kimi_k25\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"         \
    "{\"patch_size\":14,\"vt_hidden_size\":64,\"vt_num_attention_heads\":4%s}}"
#define PADDLE                                                                                     \
    "{\"model_type\":\"paddleocr_vl\",\"hidden_size\":64,\"vision_config\":"                       \
    "{\"patch_size\":14,\"hidden_size\":64,\"num_attention_heads\":4%s}}"
#define OMNI                                                                                       \
    "{\"model_type\":\"qwen3_omni_moe\",\"thinker_config\":{\"model_type\":"                       \
    "\"qwen3_omni_moe_thinker\",\"vision_config\":{\"patch_size\":16,\"hidden_size\":64,"          \
    "\"out_hidden_size\":64,\"num_heads\":4%s}}}"
#define OMNI_2                                                                                     \
    "{\"model_type\":\"qwen2_5_omni\",\"thinker_config\":{\"model_type\":\"qwen2_5_omni_"          \
    "thinker\","                                                                                   \
    "\"vision_config\":{\"patch_size\":14,\"hidden_size\":64,\"out_hidden_size\":64,"              \
    "\"num_heads\":4%s}}}"
#define DEEPSEEK                                                                                   \
    "{\"model_type\":\"deepseek_vl\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"      \
    "{\"model_type\":\"siglip_vision_model\",\"patch_size\":16,\"hidden_size\":64,"                \
    "\"num_attention_heads\":4%s}}"
#define JANUS                                                                                      \
    "{\"model_type\":\"janus\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"            \
    "{\"patch_size\":16,\"hidden_size\":64,\"num_attention_heads\":4,\"projection_dim\":64%s}}"
#define NEXT                                                                                       \
    "{\"model_type\":\"llava_next\",\"text_config\":{\"hidden_size\":64},\"vision_feature_"        \
    "layer\":%s,"                                                                                  \
    "\"vision_feature_select_strategy\":\"full\",\"vision_config\":{\"model_type\":"               \
    "\"siglip_vision_model\",\"patch_size\":14,\"hidden_size\":64,\"num_attention_heads\":4}}"
#define CLIP                                                                                       \
    "{\"model_type\":\"llava\",\"text_config\":{\"hidden_size\":64},\"vision_feature_layer\":%s,"  \
    "\"vision_config\":{\"model_type\":"                                                           \
    "\"clip_vision_model\",\"patch_size\":14,\"hidden_size\":64,\"num_attention_heads\":4}}"
#define VIP                                                                                        \
    "{\"model_type\":\"vipllava\",\"text_config\":{\"hidden_size\":64}%s,\"vision_config\":{"      \
    "\"model_type\":\"clip_vision_model\",\"patch_size\":14,\"hidden_size\":64,"                   \
    "\"num_attention_heads\":4}}"
#define PERCEPTION                                                                                 \
    "{\"model_type\":\"perception_lm\",\"text_config\":{\"hidden_size\":64},"                      \
    "\"projector_pooling_ratio\":2,\"vision_config\":{\"model_type\":\"timm_wrapper\","            \
    "\"architecture\":\"vit_pe_core_large_patch14_336\",\"model_args\":{\"depth\":23%s}}}"
#define UNIFIED                                                                                    \
    "{\"model_type\":\"gemma4_unified\",\"text_config\":{\"hidden_size\":64},\"vision_config\":{"  \
    "\"mm_embed_dim\":64,\"output_proj_dims\":64,\"pooling_kernel_size\":5%s}}"
#define MINIMAX                                                                                    \
    "{\"model_type\":\"minimax_m3_vl\",\"text_config\":{\"hidden_size\":64},\"vision_config\":{"   \
    "\"hidden_size\":64,\"num_attention_heads\":4%s}}"
#define MINIMAX_AROUND                                                                             \
    "{\"model_type\":\"minimax_m3_vl\",\"text_config\":{\"hidden_size\":64},\"vision_config\":{"   \
    "\"hidden_size\":64,\"num_attention_heads\":4}%s}"
#define DEEPSEEK_OCR                                                                               \
    "{\"model_type\":\"deepseek_ocr2\",\"text_config\":{\"hidden_size\":64},\"vision_config\":{"   \
    "\"sam_config\":{%s}}}"
#define DEEPSEEK_FIRST                                                                             \
    "{\"model_type\":\"deepseek_vl_v2\",\"hidden_size\":64,\"projector_config\":{"                 \
    "\"projector_type\":\"linear\"},\"vision_config\":{\"model_name\":\"deeplip_b_l\",%s\"model_"  \
    "type\""                                                                                       \
    ":\"vision\"}}"
#define DEEPSEEK_READS                                                                             \
    "{\"model_type\":\"deepseek_ocr2\",\"text_config\":{\"hidden_size\":64},\"vision_config\":{"   \
    "\"encoder_config\":{\"head_dim\":64%s}}}"
#define DOTS                                                                                       \
    "{\"model_type\":\"dots_ocr\",\"hidden_size\":64,\"vision_config\":{\"embed_dim\":64,\"num_"   \
    "attention_heads\":4%s}}"
#define HUNYUAN                                                                                    \
    "{\"model_type\":\"hunyuan_vl\",\"hidden_size\":64,\"vision_config\":{\"hidden_size\":64,"     \
    "\"num_attention_heads\":4%s}}"
#define HUNYUAN_4                                                                                  \
    "{\"model_type\":\"hy_v4_vl\",\"text_config\":{\"hidden_size\":64},\"vision_config\":{"        \
    "\"hidden_"                                                                                    \
    "size\":64,\"num_attention_heads\":4%s}}"
#define DOCLING                                                                                    \
    "{\"model_type\":\"granite_docling\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"  \
    "{\"image_size\":64,\"patch_size\":16,\"out_hidden_size\":64%s}}"
#define MUSE                                                                                       \
    "{\"model_type\":\"muse_glimmer\",\"out_hidden_size\":256,\"text_config\":{\"hidden_size\":"   \
    "64},"                                                                                         \
    "\"vision_config\":{\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4%s}}"
#define RADIO                                                                                      \
    "{\"model_type\":\"nemotron_h_omni\",\"text_config\":{\"hidden_size\":64},"                    \
    "\"vision_config\":{\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4%s}}"
#define RADIO_AROUND                                                                               \
    "{\"model_type\":\"NemotronH_Nano_VL_V2\",\"llm_config\":{\"hidden_size\":64}%s,"              \
    "\"vision_config\":{\"args\":{\"model\":\"vit_base_patch16_224\"}}}"
#define CPM                                                                                        \
    "{\"model_type\":\"minicpmv\",\"hidden_size\":256%s,\"vision_config\":{\"hidden_size\":64,"    \
    "\"num_attention_heads\":4}}"
#define EXAONE                                                                                     \
    "{\"model_type\":\"exaone4_5\",\"vision_config\":{\"patch_size\":14,\"hidden_size\":64,"       \
    "\"out_hidden_size\":64,\"num_heads\":8%s}}"
#define CLOVA                                                                                      \
    "{\"model_type\":\"vlm\",\"text_config\":{\"hidden_size\":64,\"embedding_multiplier\":%s},"    \
    "\"vision_config\":{\"patch_size\":14,\"hidden_size\":64,\"out_hidden_size\":32,\"num_"        \
    "heads\":8}}"
#define QIANFAN                                                                                    \
    "{\"model_type\":\"qianfan_ocr\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"      \
    "{\"patch_size\":14,\"hidden_size\":64,\"num_attention_heads\":4%s}}"
#define LFM                                                                                        \
    "{\"model_type\":\"lfm2_vl\",\"text_config\":{\"hidden_size\":64},\"projector_hidden_act\":"   \
    "\"%s\",\"vision_config\":{\"model_type\":\"siglip2_vision_model\",\"patch_size\":16,"         \
    "\"hidden_size\":64,\"num_attention_heads\":4}}"
#define LFM_PLACES                                                                                 \
    "{\"model_type\":\"lfm2_vl\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"          \
    "{\"model_type\":\"siglip2_vision_model\",\"patch_size\":16,\"hidden_size\":64,"               \
    "\"num_attention_heads\":4%s}}"
#define COSMOS                                                                                     \
    "{\"model_type\":\"cosmos3_edge\",\"text_config\":{\"hidden_size\":64},%s\"vision_config\":"   \
    "{\"patch_size\":16,\"hidden_size\":64,\"num_attention_heads\":4,\"num_patches\":25}}"
#define MINICPM                                                                                    \
    "{\"model_type\":\"minicpmv4_6\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"      \
    "{\"patch_size\":14,\"hidden_size\":64,\"num_attention_heads\":4}%s}"
#define LFM3                                                                                       \
    "{\"model_type\":\"lfm3_vl\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"          \
    "{\"patch_size\":16,\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2%s}" \
    "}"
#define STEP3                                                                                      \
    "{\"model_type\":\"step3p7\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"          \
    "{\"patch_size\":14,\"width\":64,\"heads\":4,\"layers\":2%s}}"
#define OVIS                                                                                       \
    "{\"model_type\":\"ovis2\",\"text_config\":{\"hidden_size\":64},\"vision_config\":"            \
    "{\"patch_size\":14,\"hidden_size\":64,\"num_attention_heads\":4%s}}"
#define OVIS_2_5                                                                                   \
    "{\"model_type\":\"ovis2_5\",\"llm_config\":{\"hidden_size\":64},\"visual_vocab_size\":99,"    \
    "\"vit_config\":{\"patch_size\":16,\"hidden_size\":64,\"num_attention_heads\":4%s}}"
#define IDEFICS                                                                                    \
    "{\"model_type\":\"idefics2\",\"text_config\":{\"hidden_size\":64%s},\"vision_config\":"       \
    "{\"patch_size\":14,\"image_size\":980,\"hidden_size\":64,\"num_attention_heads\":4}}"
#define PERCEIVER                                                                                  \
    "{\"model_type\":\"idefics2\",\"text_config\":{\"hidden_size\":64},\"perceiver_config\":"      \
    "{\"resampler_n_latents\":8%s},\"vision_config\":{\"patch_size\":14,\"image_size\":980,"       \
    "\"hidden_size\":64,\"num_attention_heads\":4}}"
#define AYA                                                                                        \
    "{\"model_type\":\"aya_vision\",\"text_config\":{\"hidden_size\":64},"                         \
    "\"downsample_factor\":2,\"alignment_intermediate_size\":%s,\"vision_config\":"                \
    "{\"model_type\":\"siglip_vision_model\",\"patch_size\":14,\"image_size\":364,"                \
    "\"hidden_size\":64,\"num_attention_heads\":4}}"

TEST(values_that_change_the_meaning_are_refused)
{
    static const struct {
        const char *config, *more, *why; /* NULL: it is taken */
    } all[] = {
        {MINICPM, "", NULL},
        {MINICPM, ",\"insert_layer_id\":10", NULL},
        {MINICPM, ",\"insert_layer_id\":11", "insert_layer_id"},
        {MINICPM, ",\"insert_layer_id\":-1", "insert_layer_id"},
        {MINICPM, ",\"merger_times\":2", "merger_times"},
        {MINICPM, ",\"merge_kernel_size\":[2,4]", "merge_kernel_size"},
        {MINICPM, ",\"downsample_mode\":\"4x\"", "downsample_mode"},
        {OVIS, "", NULL},
        {OVIS, ",\"hidden_stride\":3", "hidden_stride"},
        {OVIS, ",\"tokenize_function\":\"st_argmax\"", "tokenize_function"},
        {OVIS, ",\"num_visual_indicator_tokens\":8,\"vocab_size\":8", "vocab_size"},
        {OVIS_2_5, "", NULL},
        {OVIS_2_5, ",\"num_patches\":1024", "num_patches"},
        {OVIS_2_5, ",\"fullatt_block_indexes\":\"1|3\"", "fullatt_block_indexes"},
        {OVIS_2_5, ",\"use_rope\":false", "use_rope"},
        {OVIS_2_5, ",\"preserve_original_pe\":false", "preserve_original_pe"},
        {LLAMA, "", NULL},
        {LLAMA, ",\"hidden_act\":\"silu\"", "hidden_act"},
        {LLAMA, ",\"pixel_shuffle_ratio\":0.4", "pixel_shuffle_ratio"},
        {LLAMA, ",\"pixel_shuffle_ratio\":0.25", "intermediate_size"},
        {LLAMA, ",\"multi_modal_projector_bias\":true", "multi_modal_projector_bias"},
        {LLAMA, ",\"vision_feature_select_strategy\":\"full\"", "vision_feature_select_strategy"},
        {LLAMA, ",\"image_size\":[336,448]", "image_size"},
        {GEMMA, "", NULL},
        {GEMMA, ",\"num_key_value_heads\":3", "num_key_value_heads"},
        {GEMMA, ",\"rope_parameters\":{\"rope_type\":\"default\"}", "rope_parameters"},
        {GEMMA, ",\"attention_bias\":true", "attention_bias"},
        {GEMMA, ",\"hidden_activation\":\"mystery\"", "hidden_activation"},
        {UNIFIED, "", NULL},
        {UNIFIED, ",\"output_proj_dims\":32", "output_proj_dims"},
        {UNIFIED, ",\"patch_size\":64", "pooling_kernel_size"},
        {GLM, "", NULL},
        {GLM, ",\"in_channels\":1", "in_channels"},
        {GLM, ",\"image_size\":7", "image_size"},
        {GLM, ",\"rope_parameters\":{\"rope_type\":\"yarn\"}", "rope_type"},
        {GLM_5, "", NULL},
        {GLM_5, ",\"swiglu_limit\":0", "swiglu_limit"},
        {GLM_5, ",\"hidden_act\":\"gelu\"", "hidden_act"},
        {GLM_OCR, "", NULL},
        {GLM_OCR, ",\"in_channels\":1", "in_channels"},
        {GLM_OCR, ",\"hidden_act\":\"mystery\"", "hidden_act"},
        {GLM_OCR, ",\"rope_parameters\":{\"rope_type\":\"yarn\"}", "rope_type"},
        {LIGHTON, "", NULL},
        {LIGHTON, ",\"hidden_act\":\"mystery\"", "hidden_act"},
        {LIGHTON, ",\"rope_parameters\":{\"rope_type\":\"yarn\"}", "rope_type"},
        {KIMI, "", NULL},
        {KIMI, ",\"init_pos_emb_width\":32", "init_pos_emb_width"},
        {KIMI, ",\"merge_kernel_size\":[2,1]", "merge_kernel_size"},
        {K25, "", NULL},
        {K25, ",\"pos_emb_width\":32", "pos_emb_width"},
        {K25, ",\"mm_projector_type\":\"mystery\"", "mm_projector_type"},
        {K25, ",\"pos_emb_type\":\"mystery\"", "pos_emb_type"},
        {PADDLE, "", NULL},
        {PADDLE, ",\"image_size\":7", "image_size"},
        {PADDLE, ",\"hidden_act\":\"mystery\"", "hidden_act"},
        {PADDLE, ",\"rope_parameters\":{\"rope_type\":\"yarn\"}", "rope_type"},
        {OMNI, "", NULL},
        {OMNI, ",\"num_position_embeddings\":50", "num_position_embeddings"},
        {OMNI, ",\"deepstack_visual_indexes\":[99]", "deepstack_visual_indexes"},
        {OMNI, ",\"deepstack_visual_indexes\":[1,0]", "deepstack_visual_indexes"},
        {CPM, "", NULL},
        {CPM, ",\"query_num\":0", "query_num"},
        {CPM, ",\"image_size\":7", "image_size"},
        {DOTS, "", NULL},
        {DOTS, ",\"is_causal\":true", "is_causal"},
        {DOTS, ",\"spatial_merge_size\":0", "spatial_merge_size"},
        {HUNYUAN, "", NULL},
        {HUNYUAN, ",\"interpolate_mode\":\"nearest\"", "interpolate_mode"},
        {HUNYUAN, ",\"temporal_patch_size\":2", "temporal_patch_size"},
        {HUNYUAN, ",\"max_image_size\":8", "image_size"},
        {HUNYUAN_4, "", NULL},
        {HUNYUAN_4, ",\"interpolate_mode\":\"nearest\"", "interpolate_mode"},
        {HUNYUAN_4, ",\"spatial_merge_size\":9", "spatial_merge_size"},
        {DOCLING, ",\"deepstack_visual_indexes\":[3,7,10]", NULL},
        {DOCLING, "", "deepstack_visual_indexes"},
        {DOCLING, ",\"deepstack_visual_indexes\":[7,3]", "deepstack_visual_indexes"},
        {DOCLING, ",\"scale_factor\":3", "scale_factor"},
        {DOCLING, ",\"out_hidden_size\":32", "out_hidden_size"},
        {LFM3, "", NULL},
        {LFM3, ",\"num_hidden_layers\":2,\"layer_types\":[\"conv\",\"full_attention\"]", NULL},
        {LFM3, ",\"layer_types\":[\"conv\",\"sliding_attention\"]", "sliding_attention"},
        {LFM3, ",\"num_hidden_layers\":2,\"layer_types\":[\"conv\"]", "layers of type"},
        {LFM3, ",\"conv_kernel_size\":4", "conv_kernel_size"},
        {LFM3, ",\"intermediate_size\":0", "intermediate_size"},
        {LFM3, ",\"spatial_merge_size\":9", "spatial_merge_size"},
        {LFM3, ",\"rope_parameters\":{\"rope_type\":\"yarn\"}", "rope_type"},
        {STEP3, "", NULL},
        {STEP3, ",\"image_size\":700", "image_size"},
        {STEP3, ",\"use_cls_token\":true", "use_cls_token"},
        {STEP3, ",\"use_ln_pre\":false", "use_ln_pre"},
        {STEP3, ",\"use_ln_post\":true", "use_ln_post"},
        {STEP3, ",\"use_abs_posemb\":false", "use_abs_posemb"},
        {STEP3, ",\"use_rope2d\":false", "use_rope2d"},
        {MUSE, "", NULL},
        {MUSE, ",\"layer_types\":[\"full_attention\",\"window_attention\"]", NULL},
        {MUSE, ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]", "sliding_attention"},
        {MUSE, ",\"layer_norm_eps\":1e-6", "layer_norm_eps"},
        {MUSE, ",\"pos_emb_width\":16", "pos_emb_width"},
        {MUSE, ",\"pos_emb_height\":33,\"pos_emb_width\":33", "pos_emb_height"},
        {MUSE, ",\"merge_size\":4", "out_hidden_size"},
        {MUSE, ",\"rope_parameters\":{\"rope_type\":\"yarn\"}", "rope_type"},
        {RADIO, "", NULL},
        {RADIO, ",\"num_registers\":65", "num_registers"},
        {RADIO, ",\"mlp_ratio\":0", "mlp_ratio"},
        {RADIO, ",\"max_img_size\":8", "image_size"},
        {RADIO, ",\"use_swiglu_ffn\":true", "use_swiglu_ffn"},
        {RADIO, ",\"layerscale_value\":0.1", "layerscale_value"},
        {RADIO, ",\"separate_video_embedder\":false", "separate_video_embedder"},
        {RADIO, ",\"vitdet_window_size\":16", "vitdet_window_size"},
        {RADIO, ",\"vitdet_window_size\":null", NULL},
        {RADIO, ",\"feature_normalizer_config\":{}", "feature_normalizer_config"},
        {RADIO, ",\"args\":{\"model_norm\":true}", "model_norm"},
        {RADIO, ",\"args\":{\"model\":\"vit_giant\"}", "vit_giant"},
        {RADIO, ",\"args\":{\"register_multiple\":65}", "register_multiple"},
        {RADIO, ",\"args\":{\"cpe_num_registers\":-1}", "cpe_num_registers"},
        {RADIO_AROUND, "", NULL},
        {RADIO_AROUND, ",\"vit_hidden_size\":1280", "vit_hidden_size"},
        {RADIO_AROUND, ",\"projector_hidden_size\":0", "projector_hidden_size"},
        {RADIO_AROUND, ",\"downsample_ratio\":0.3", "downsample_ratio"},
        {RADIO_AROUND, ",\"ps_version\":\"v1\"", "ps_version"},
        {OMNI_2, "", NULL},
        {OMNI_2, ",\"window_size\":7", "window_size"},
        {DEEPSEEK, "", NULL},
        {DEEPSEEK, ",\"hidden_act\":\"mystery\"", "hidden_act"},
        {DEEPSEEK, ",\"image_size\":7", "image_size"},
        {JANUS, "", NULL},
        {JANUS, ",\"use_qk_norm\":true", "use_qk_norm"},
        {JANUS, ",\"depth\":3", "depth"},
        {JANUS, ",\"mlp_ratio\":0", "mlp_ratio"},
        {NEXT, "-1", NULL},
        {NEXT, "[-6,3,-1]", NULL},
        {NEXT, "[]", "vision_feature_layer"},
        {NEXT, "[-1,12]", "vision_feature_layer"},
        {NEXT, "[0,1]", "vision_feature_layer"},
        {NEXT, "[1,2,3,4,5,6,7,8,9]", "vision_feature_layer"},
        {CLIP, "-2", NULL},
        {CLIP, "[-2,-1]", NULL},
        {CLIP, "[-2,-2]", "vision_feature_layer"},
        {VIP, "", NULL},
        {VIP, ",\"vision_feature_layers\":[-2,6]", NULL},
        {VIP, ",\"vision_feature_layers\":[-2,23]", "twice"},
        {VIP, ",\"vision_feature_layers\":[]", "vision_feature_layers"},
        {VIP, ",\"vision_feature_layers\":[0]", "vision_feature_layers"},
        {PERCEPTION, "", NULL},
        {PERCEPTION, ",\"num_reg_tokens\":4", "num_reg_tokens"},
        {PERCEPTION, ",\"ref_feat_shape\":[32,32]", "ref_feat_shape"},
        {PERCEPTION, ",\"mlp_ratio\":0", "mlp_ratio"},
        {PERCEPTION, ",\"class_token\":false", "vision_use_cls_token"},
        {MINIMAX, "", NULL},
        {MINIMAX, ",\"img_token_compression_config\":{\"spatial_merge_size\":4}", NULL},
        {MINIMAX, ",\"spatial_merge_size\":0", "spatial_merge_size"},
        {MINIMAX, ",\"rope_mode\":\"2d\"", "rope_mode"},
        {MINIMAX, ",\"position_embedding_type\":\"learned\"", "position_embedding_type"},
        {MINIMAX, ",\"rope_parameters\":{\"rope_type\":\"yarn\"}", "rope_type"},
        {MINIMAX, ",\"head_dim\":4", "head"},
        {MINIMAX_AROUND, ",\"projector_hidden_size\":0", "projector_hidden_size"},
        {MINIMAX_AROUND, ",\"projector_hidden_act\":\"relu\"", "projector_hidden_act"},
        {MINIMAX_AROUND, ",\"multimodal_projector_bias\":false", "multimodal_projector_bias"},
        {MINIMAX_AROUND, ",\"vision_feature_layer\":-2", "vision_feature_layer"},
        {DEEPSEEK_OCR, "", NULL},
        {DEEPSEEK_OCR, "\"downsample_channels\":[512,1024]", "downsample_channels"},
        {DEEPSEEK_OCR, "\"downsample_channels\":[512]", NULL},
        {DEEPSEEK_OCR, "\"downsample_channels\":[0,896]", "downsample_channels"},
        {DEEPSEEK_OCR, "\"image_size\":896", "image_size"},
        {DEEPSEEK_OCR, "\"use_rel_pos\":false", "use_rel_pos"},
        {DEEPSEEK_FIRST, "", NULL},
        {DEEPSEEK_FIRST, "\"width\":{\"clip-l-14-224\":{\"width\":768}},", "clip-l-14-224"},
        {DEEPSEEK_FIRST, "\"width\":{\"sam_vit_b\":{\"downsample_channels\":[512,768]}},",
         "clip-l-14-224"},
        {DEEPSEEK_FIRST, "\"image_size\":1000,", "image_size"},
        {DEEPSEEK_READS, "", NULL},
        {DEEPSEEK_READS, ",\"num_key_value_heads\":3", "num_key_value_heads"},
        {DEEPSEEK_READS, ",\"use_sliding_window\":true", "use_sliding_window"},
        {DEEPSEEK_READS, ",\"hidden_size\":448", "hidden_size"},
        {EXAONE, "", NULL},
        {EXAONE, ",\"num_key_value_heads\":3", "num_key_value_heads"},
        {EXAONE, ",\"num_key_value_heads\":9", "num_key_value_heads"},
        {CLOVA, "8", NULL},
        {CLOVA, "-1", "embedding_multiplier"},
        {QIANFAN, "", NULL},
        {QIANFAN, ",\"norm_type\":\"mystery\"", "norm_type"},
        {QIANFAN, ",\"use_mean_pooling\":false", "use_mean_pooling"},
        {QIANFAN, ",\"layer_norm_eps\":1e-3", NULL},
        {QIANFAN, ",\"use_qk_norm\":true", NULL},
        {QIANFAN, ",\"use_qk_norm\":true,\"layer_norm_eps\":1e-3", "layer_norm_eps"},
        {LFM, "gelu", NULL},
        {LFM, "relu", NULL},
        {LFM, "mystery", "projector_hidden_act"},
        {LFM_PLACES, "", NULL},
        {LFM_PLACES, ",\"num_patches\":250", "num_patches"},
        {COSMOS, "", NULL},
        {COSMOS, "\"projector_hidden_size\":0,", "projector_hidden_size"},
        {COSMOS, "\"projector_hidden_size\":1e9,", "projector_hidden_size"},
        {IDEFICS, "", NULL},
        {IDEFICS, ",\"hidden_act\":\"relu\"", "hidden_act"},
        {IDEFICS, ",\"intermediate_size\":0", "intermediate_size"},
        {PERCEIVER, "", NULL},
        {PERCEIVER, ",\"hidden_act\":\"mystery\"", "hidden_act"},
        {PERCEIVER, ",\"num_key_value_heads\":3", "num_key_value_heads"},
        {PERCEIVER, ",\"resampler_depth\":9", "resampler_depth"},
        {GEMMA_3N, "", NULL},
        {GEMMA_3N, ",\"architecture\":\"mystery\"", "architecture"},
        {GEMMA_3N, ",\"model_args\":{\"mystery\":1}", "mystery"},
        {GEMMA_3N, ",\"model_args\":{\"channel_multiplier\":0}", "channel_multiplier"},
        {GEMMA_3N, ",\"model_args\":{\"msfa_output_resolution\":8}", "vision_soft_tokens"},
        {FAST, "", NULL},
        {FAST, ",\"mystery\":1", "mystery"},
        {FAST, ",\"layers\":[1,2,3]", "layers"},
        {FAST, ",\"layers\":[64,64,64,64,64]", "steps"},
        {FAST, ",\"embed_dims\":[96,192,384,768,768]", "hidden_size"},
        {FAST, ",\"embed_dims\":[96,100,384,768,1536]", "embed_dims"},
        {GOT, "", NULL},
        {GOT, ",\"patch_size\":17", "patch_size"},
        {GOT, ",\"use_rel_pos\":false", "use_rel_pos"},
        {GOT, ",\"layer_norm_eps\":1e-5", "layer_norm_eps"},
        {GOT, ",\"num_attention_heads\":7", "num_attention_heads"},
        {GOT, ",\"hidden_act\":\"mystery\"", "hidden_act"},
        {AYA, "64", NULL},
        {AYA, "63", "alignment_intermediate_size"},
        {PALI, "", NULL},
        {PALI, ",\"hidden_act\":\"mystery\"", "hidden_act"},
        {PALI, ",\"image_size\":7", "image_size"},
        {PALI, ",\"patch_size\":0", "patch_size"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const char *at = strstr(all[i].config, "%s");
        char config[600];
        struct encoder_spec s;
        struct err e;
        /* the last of equal keys would be overlooked: it takes the first one's place */
        snprintf(config, sizeof(config), "%.*s%s%s", (int)(at - all[i].config), all[i].config,
                 all[i].more, at + 2);
        char key[64] = "";
        if (all[i].more[0])
            snprintf(key, sizeof(key), "%.*s", (int)(strchr(all[i].more, ':') - all[i].more - 1),
                     all[i].more + 1);
        char *first = key[0] ? strstr(config, key) : NULL;
        const char *own = strstr(config, all[i].more);
        if (first && first < own)
            first[1] = '_';
        const int rc = configure(config, &s, &e);
        if (rc != (all[i].why ? -1 : 0) || (all[i].why && !strstr(e.msg, all[i].why)))
            fail_msg("%s: %d %s", config, rc, e.msg);
    }
}

TEST(a_projection_has_the_text_models_width)
{
    struct encoder_spec s;
    struct err e;
    assert_int_equal(configure("{\"model_type\":\"paligemma\",\"text_config\":{\"hidden_size\":64},"
                               "\"vision_config\":{\"patch_size\":14,\"projection_dim\":65}}",
                               &s, &e),
                     -1);
    assert_non_null(strstr(e.msg, "projection_dim"));
    assert_int_equal(configure("{\"model_type\":\"llama4\",\"vision_config\":{\"patch_size\":14,"
                               "\"vision_output_dim\":4095}}",
                               &s, &e),
                     -1);
}

/* Class tokens and registers of RADIO by the keys of its authors. */
TEST(registers_fill_a_multiple)
{
    static const struct {
        const char *args;
        uint32_t want;
    } all[] = {
        {"", 10},
        {",\"register_multiple\":8", 8},
        {",\"register_multiple\":null", 1},
        {",\"register_multiple\":1", 2}, /* a whole multiple gets another one */
        {",\"teachers\":[{\"name\":\"a\"},{\"name\":\"b\"},{\"name\":\"a\"}]", 10},
        {",\"register_multiple\":2,\"teachers\":[{\"name\":\"a\"},{\"name\":\"b\"}]", 4},
        {",\"cls_token_per_teacher\":false,\"register_multiple\":null,"
         "\"teachers\":[{\"name\":\"a\"},{\"name\":\"b\"}]",
         1},
        {",\"cpe_num_registers\":6", 7},
    };
    struct encoder_spec s;
    struct err e;
    char config[512], args[256];
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        snprintf(args, sizeof(args), ",\"args\":{\"model\":\"vit_base_patch16_224\"%s}",
                 all[i].args);
        snprintf(config, sizeof(config), RADIO, args);
        assert_int_equal(configure(config, &s, &e), 0);
        if (encoder_leading(&s) != all[i].want)
            fail_msg("%s: %u rows", args, encoder_leading(&s));
    }
}

int main(void) { return tests_run(NULL, NULL); }
