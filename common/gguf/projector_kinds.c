/* One row per projector of llama.cpp: what its metadata say in the words of config.json and
 * preprocessor_config.json. */
#include "common/gguf/projector_impl.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *arch(const struct projector *p) { return p->m->f->name; }
static void edge(cJSON *o, const char *key, double longest)
{
    meta_put_in(cJSON_AddObjectToObject(o, key), "longest_edge", longest);
}

/* ---------------------------------------------------------------- Qwen */

static const char *const qwen2_archs[] = {"qwen2vl", NULL};
static const char *const qwen3_archs[] = {"qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", NULL};

static const char *qwen3_type(const struct projector *p)
{
    static const char *const types[][2] = {
        {"qwen3vlmoe", "qwen3_vl_moe"}, {"qwen35moe", "qwen3_5_moe"}, {"qwen35", "qwen3_5"}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(arch(p), types[i][0]) == 0)
            return types[i][1];
    return "qwen3_vl";
}

/* Positions of three axes, which the text model alone does without. */
static void three_axes(const struct projector *p, bool interleaved)
{
    const struct gguf_value *list = meta_numbers(p->m, "rope.dimension_sections");
    cJSON *r = cJSON_GetObjectItemCaseSensitive(p->text, "rope_scaling");
    if (!list || list->n < 3)
        return;
    if (!r) {
        r = cJSON_AddObjectToObject(p->text, "rope_scaling");
        cJSON_AddStringToObject(r, "rope_type", "default");
    }
    meta_put_list(r, "mrope_section", list, 3);
    cJSON_AddBoolToObject(r, "mrope_interleaved", interleaved);
}

/* Sizes under Qwen's keys. Files have the text model's epsilon; that of the tower is fixed. */
static void qwen(const struct projector *p, bool third)
{
    cJSON *t = p->tower;
    cJSON_DeleteItemFromObjectCaseSensitive(t, "layer_norm_eps");
    meta_put_in(t, "depth", projector_number(p, "block_count", 0));
    meta_put_in(t, "num_heads", projector_number(p, "attention.head_count", 0));
    meta_put_in(t, "spatial_merge_size", projector_number(p, "spatial_merge_size", 2));
    meta_put_in(t, "temporal_patch_size", 2);
    meta_put_in(t, "out_hidden_size", projector_number(p, "projection_dim", 0));
    three_axes(p, third);
}

/* The file's feed_forward_length is another number. */
static void qwen2(const struct projector *p)
{
    const double hidden = projector_number(p, "embedding_length", 1);
    qwen(p, false);
    meta_put_in(p->tower, "embed_dim", hidden);
    meta_put_in(p->tower, "mlp_ratio", projector_dim(p, "v.blk.0.ffn_up.weight", 1) / hidden);
    cJSON_ReplaceItemInObjectCaseSensitive(
        p->tower, "hidden_size", cJSON_CreateNumber(projector_number(p, "projection_dim", 0)));
}

/* Every n-th layer has no windows, whose size llama.cpp fixes, too. */
static void qwen2_5(const struct projector *p)
{
    const double every = projector_number(p, "n_wa_pattern", 0);
    const double layers = projector_number(p, "block_count", 0);
    qwen(p, false);
    meta_put_in(p->tower, "window_size", projector_number(p, "window_size", 112));
    cJSON *full = cJSON_AddArrayToObject(p->tower, "fullatt_block_indexes");
    for (int i = 0; i < layers && i < GGUF_LAYERS_MAX; i++)
        if (!(every >= 1 && every <= GGUF_LAYERS_MAX) || (i + 1) % (int)every == 0)
            cJSON_AddItemToArray(full, cJSON_CreateNumber(i));
}

static void qwen3(const struct projector *p)
{
    const struct gguf_value *list = gguf_numbers(p->file, "clip.vision.is_deepstack_layers");
    qwen(p, true);
    meta_put_in(p->tower, "num_position_embeddings", projector_dim(p, "v.position_embd.weight", 1));
    cJSON *at = cJSON_AddArrayToObject(p->tower, "deepstack_visual_indexes");
    for (uint64_t i = 0; list && i < list->n && i < GGUF_LAYERS_MAX; i++)
        if (gguf_number_at(list, i) != 0)
            cJSON_AddItemToArray(at, cJSON_CreateNumber((double)i));
}

/* Sizes of published models where the file has none. */
static void qwen_pixels(const struct projector *p, double least, double most)
{
    meta_put_in(p->pixels, "min_pixels", projector_number(p, "image_min_pixels", least));
    meta_put_in(p->pixels, "max_pixels", projector_number(p, "image_max_pixels", most));
    meta_put_in(p->pixels, "patch_size", projector_number(p, "patch_size", 0));
}
static void qwen2_pixels(const struct projector *p) { qwen_pixels(p, 3136, 12845056); }
static void qwen3_pixels(const struct projector *p) { qwen_pixels(p, 65536, 16777216); }

#define QWEN_TOKENS                                                                                \
    {                                                                                              \
        {"image_token_id", {"<|image_pad|>", "<|IMAGE|>"}}, /* Qwen2.5-Omni */                     \
            {"vision_start_token_id", {"<|vision_start|>", "<|vision_bos|>"}},                     \
        {                                                                                          \
            "vision_end_token_id", { "<|vision_end|>", "<|vision_eos|>" }                          \
        }                                                                                          \
    }

/* ---------------------------------------------------------------- Gemma 3 */

static const char *const gemma3_archs[] = {"gemma3", NULL};

static void gemma3(const struct projector *p)
{
    const double scale = projector_number(p, "projector.scale_factor", 4);
    const double side =
        projector_number(p, "image_size", 0) / projector_number(p, "patch_size", 1) / scale;
    meta_put_in(p->config, "mm_tokens_per_image", side * side);
}

static void square_pixels(const struct projector *p)
{
    projector_square(p->pixels, "size", projector_number(p, "image_size", 0));
}

/* ---------------------------------------------------------------- Pixtral, LightOnOCR */

static const char *const pixtral_archs[] = {"llama", "mistral3", "mistral4", NULL};
static const char *const lighton_archs[] = {"qwen3", NULL};

static const char *pixtral_type(const struct projector *p)
{
    return projector_has(p, "mm.patch_merger.weight") ? "mistral3" : "llava";
}
static void pixtral(const struct projector *p)
{
    meta_put_in(p->config, "spatial_merge_size", projector_number(p, "spatial_merge_size", 1));
    cJSON_AddBoolToObject(p->config, "multimodal_projector_bias", projector_has(p, "mm.1.bias"));
}

static void pixtral_pixels(const struct projector *p)
{
    const double longest = projector_number(p, "image_size", 0);
    edge(p->pixels, "size", projector_number(p, "preproc_image_size", longest));
    meta_put_in(p->pixels, "patch_size", projector_number(p, "patch_size", 0));
}

/* ---------------------------------------------------------------- Idefics 3, SmolVLM */

static const char *const idefics3_archs[] = {"llama", NULL};

static void idefics3(const struct projector *p)
{
    meta_put_in(p->config, "scale_factor", projector_number(p, "projector.scale_factor", 2));
}

static void idefics3_pixels(const struct projector *p)
{
    const double tile = projector_number(p, "image_size", 0);
    edge(p->pixels, "max_image_size", tile);
    edge(p->pixels, "size", projector_number(p, "preproc_image_size", 4 * tile));
}

/* ---------------------------------------------------------------- InternVL */

static void internvl(const struct projector *p)
{
    meta_put_in(p->config, "downsample_ratio",
                1 / projector_number(p, "projector.scale_factor", 2));
    cJSON_AddBoolToObject(p->tower, "attention_bias", projector_has(p, "v.blk.0.attn_q.bias"));
    cJSON_AddBoolToObject(p->tower, "use_qk_norm", projector_has(p, "v.blk.0.attn_q_norm.weight"));
    cJSON_AddStringToObject(p->tower, "norm_type",
                            projector_has(p, "v.blk.0.ln1.bias") ? "layer_norm" : "rms_norm");
}

static void internvl_pixels(const struct projector *p)
{
    square_pixels(p);
    meta_put_in(p->pixels, "min_patches", projector_number(p, "preproc_min_tiles", 1));
    meta_put_in(p->pixels, "max_patches", projector_number(p, "preproc_max_tiles", 12));
}

/* ---------------------------------------------------------------- Nemotron Nano VL */

static const char *const nemotron_archs[] = {"nemotron_h", "nemotron_h_moe", NULL};

/* The converter fits the table of positions to the one size of a picture. */
static void nemotron(const struct projector *p)
{
    const double patch = projector_number(p, "patch_size", 16);
    cJSON *t = p->tower;
    meta_put_in(p->config, "downsample_ratio",
                1 / projector_number(p, "projector.scale_factor", 2));
    meta_put_in(p->config, "force_image_size", projector_number(p, "image_size", 512));
    meta_put_in(p->config, "projector_hidden_size", projector_dim(p, "mm.model.mlp.1.weight", 1));
    meta_put_in(t, "max_img_size", sqrt(projector_dim(p, "v.position_embd.weight", 1)) * patch);
    meta_put_in(t, "num_cls_tokens", projector_dim(p, "v.class_embd", 1));
    meta_put_in(t, "num_registers", 0);
}

/* One square, as llama.cpp shows a picture, unless the file has a number of tiles. */
static void nemotron_pixels(const struct projector *p)
{
    meta_put_in(p->pixels, "max_num_tiles", projector_number(p, "preproc_max_tiles", 1));
}

/* ---------------------------------------------------------------- Gemma 4 */

static const char *const gemma4_archs[] = {"gemma4", NULL};
enum { WIDTH_OF_E2B = 1536, WIDTH_OF_E4B = 2560 };

/* The file does not say whether the tokens of an image attend to each other. They do but for the
 * two small models, which llama.cpp recognises by their width, too. */
static void gemma4(const struct projector *p)
{
    const double head = projector_dim(p, "v.blk.0.attn_q_norm.weight", 0);
    const double width = projector_number(p, "projection_dim", 0);
    cJSON *t = p->tower;
    meta_put_in(t, "head_dim", head);
    meta_put_in(t, "num_key_value_heads", projector_dim(p, "v.blk.0.attn_k.weight", 1) / head);
    meta_put_in(t, "position_embedding_size", projector_dim(p, "v.position_embd.weight", 1));
    meta_put_in(t, "pooling_kernel_size", projector_number(p, "projector.scale_factor", 3));
    cJSON_AddBoolToObject(t, "standardize",
                          projector_has(p, "v.std_scale") ||
                              projector_has(p, "v.std_scale.weight"));
    cJSON_AddBoolToObject(t, "use_clipped_linears", projector_has(p, "v.blk.0.attn_q.input_max"));
    if (width != WIDTH_OF_E2B && width != WIDTH_OF_E4B)
        cJSON_AddStringToObject(p->text, "use_bidirectional_attention", "vision");
}

/* ---------------------------------------------------------------- Llama 4 */

static const char *const llama4_archs[] = {"llama4", NULL};

static void llama4(const struct projector *p)
{
    const double middle = projector_dim(p, "mm.model.mlp.1.weight", 1);
    meta_put_in(p->tower, "pixel_shuffle_ratio",
                1 / projector_number(p, "projector.scale_factor", 2));
    meta_put_in(p->tower, "projector_input_dim", middle);
    meta_put_in(p->tower, "projector_output_dim", middle);
    meta_put_in(p->tower, "vision_output_dim", middle);
}

/* ---------------------------------------------------------------- Kimi-VL */

static const char *const kimi_archs[] = {"deepseek2", NULL};

static void kimi(const struct projector *p)
{
    const double side = floor(sqrt(projector_dim(p, "v.position_embd.weight", 1)));
    meta_put_in(p->tower, "init_pos_emb_height", side);
    meta_put_in(p->tower, "init_pos_emb_width", side);
    meta_put_in(p->tower, "merge_kernel_size", projector_number(p, "projector.scale_factor", 2));
}

static void kimi_pixels(const struct projector *p)
{
    cJSON_AddTrueToObject(p->pixels, "pad_input");
}

/* ---------------------------------------------------------------- GLM */

static const char *const glm_archs[] = {"glm4", "glm4moe", NULL};

/* GLM-OCR has norms of q and k in place of positions. */
static const char *glm_type(const struct projector *p)
{
    return strcmp(arch(p), "glm4moe") == 0                  ? "glm4v_moe"
           : projector_has(p, "v.blk.0.attn_q_norm.weight") ? "glm_ocr"
                                                            : "glm4v";
}

static void glm(const struct projector *p)
{
    const double side = floor(sqrt(projector_dim(p, "v.position_embd.weight", 1)));
    const double eps = projector_number(p, "attention.layer_norm_epsilon", 1e-5);
    char type[32];
    qwen(p, false);
    meta_put_in(p->tower, "rms_norm_eps", eps);
    cJSON_AddBoolToObject(p->tower, "attention_bias", projector_has(p, "v.blk.0.attn_qkv.bias"));
    cJSON_DeleteItemFromObjectCaseSensitive(p->tower, "image_size");
    meta_put_in(p->tower, "image_size", side * projector_number(p, "patch_size", 14));
    snprintf(type, sizeof(type), "%s_text", glm_type(p));
    cJSON_ReplaceItemInObjectCaseSensitive(p->text, "model_type", cJSON_CreateString(type));
}

/* ---------------------------------------------------------------- Kimi K2.5 */

/* A limit of patches, which files say in pixels. */
static void k25_pixels(const struct projector *p)
{
    const double patch = projector_number(p, "patch_size", 14);
    const double most = projector_number(p, "image_max_pixels", 16384 * patch * patch);
    cJSON *o = cJSON_AddObjectToObject(p->pixels, "media_proc_cfg");
    static const char *const moved[] = {"image_mean", "image_std"};
    for (size_t i = 0; i < sizeof(moved) / sizeof(moved[0]); i++)
        cJSON_AddItemToObject(o, moved[i],
                              cJSON_DetachItemFromObjectCaseSensitive(p->pixels, moved[i]));
    meta_put_in(o, "in_patch_limit", floor(most / (patch * patch)));
    meta_put_in(o, "patch_size", patch);
    meta_put_in(o, "merge_kernel_size", projector_number(p, "projector.scale_factor", 2));
}

/* ---------------------------------------------------------------- Janus */

static const char *const janus_archs[] = {"llama", NULL};

static void janus(const struct projector *p)
{
    const double hidden = projector_number(p, "embedding_length", 1);
    meta_put_in(p->tower, "mlp_ratio", projector_dim(p, "v.blk.0.ffn_up.weight", 1) / hidden);
    meta_put_in(p->tower, "projection_dim", projector_number(p, "projection_dim", 0));
    cJSON_AddBoolToObject(p->tower, "attention_bias", projector_has(p, "v.blk.0.attn_q.bias"));
}

/* ---------------------------------------------------------------- PaddleOCR-VL */

static const char *const paddle_archs[] = {"paddleocr", NULL};
enum { PADDLE_SIDE = 384 }; /* of the pictures that its positions are for */

/* image_size of the file is another number. */
static void paddle(const struct projector *p)
{
    const double patch = projector_number(p, "patch_size", 14);
    const double side = floor(sqrt(projector_dim(p, "v.position_embd.weight", 1))) * patch;
    cJSON_ReplaceItemInObjectCaseSensitive(p->tower, "image_size",
                                           cJSON_CreateNumber(side > 0 ? side : PADDLE_SIDE));
    meta_put_in(p->tower, "spatial_merge_size", projector_number(p, "spatial_merge_size", 2));
    three_axes(p, false);
}

static void paddle_pixels(const struct projector *p)
{
    meta_put_in(p->pixels, "min_pixels", projector_number(p, "image_min_pixels", 147384));
    meta_put_in(p->pixels, "max_pixels", projector_number(p, "image_max_pixels", 2822400));
    meta_put_in(p->pixels, "patch_size", projector_number(p, "patch_size", 14));
}

/* ---------------------------------------------------------------- Gemma 4, unified */

/* A patch is as large as a feature; pixels are counted in ninths of it. The file's epsilon is that
 * of the projection. */
static void gemma4_unified(const struct projector *p)
{
    const double side = floor(sqrt(projector_dim(p, "v.patch_embd.weight", 0) / 3));
    cJSON *t = p->tower;
    meta_put_in(t, "mm_embed_dim", projector_dim(p, "v.patch_embd.weight", 1));
    meta_put_in(t, "mm_posemb_size", projector_dim(p, "v.position_embd.weight", 1));
    meta_put_in(t, "pooling_kernel_size", 3);
    cJSON_DeleteItemFromObjectCaseSensitive(t, "patch_size");
    meta_put_in(t, "patch_size", floor(side / 3));
    cJSON_DeleteItemFromObjectCaseSensitive(t, "layer_norm_eps");
    meta_put_in(t, "rms_norm_eps", projector_number(p, "attention.layer_norm_epsilon", 1e-6));
    cJSON_AddStringToObject(p->text, "use_bidirectional_attention", "vision");
}

/* ---------------------------------------------------------------- LFM2-VL */

static const char *const lfm2_archs[] = {"lfm2", "lfm2moe", NULL};

static void lfm2(const struct projector *p)
{
    meta_put_in(p->tower, "num_patches", projector_dim(p, "v.position_embd.weight", 1));
    meta_put_in(p->config, "downsample_factor", projector_number(p, "projector.scale_factor", 2));
    meta_put_in(p->config, "projector_hidden_size", projector_dim(p, "mm.1.weight", 1));
    cJSON_AddBoolToObject(p->config, "projector_bias", projector_has(p, "mm.1.bias"));
    cJSON_AddBoolToObject(p->config, "projector_use_layernorm",
                          projector_has(p, "mm.input_norm.weight"));
}

/* ---------------------------------------------------------------- LLaVA */

static const char *const llava_archs[] = {"llama", "mistral3", "qwen2", "phi3", "granite", NULL};

/* ---------------------------------------------------------------- the rows */

const struct projector_kind projector_kinds[] = {
    {.word = "mlp",
     .archs = llava_archs,
     .find_type = projector_llava_type,
     .find_tower = projector_llava_tower,
     .gelu = "gelu",
     .tokens = {{"image_token_index", {"<image>"}}},
     .more = projector_llava,
     .pixels = projector_llava_pixels,
     .last = "mm.2.weight",
     .unlisted = true},
    {.word = "qwen2vl_merger",
     .archs = qwen2_archs,
     .type = "qwen2_vl",
     .gelu = "gelu",
     .tokens = QWEN_TOKENS,
     .more = qwen2,
     .pixels = qwen2_pixels},
    {.word = "qwen2.5vl_merger",
     .archs = qwen2_archs,
     .type = "qwen2_5_vl",
     .gelu = "gelu",
     .tokens = QWEN_TOKENS,
     .more = qwen2_5,
     .pixels = qwen2_pixels},
    {.word = "qwen3vl_merger",
     .archs = qwen3_archs,
     .find_type = qwen3_type,
     .gelu = "gelu_pytorch_tanh",
     .tokens = QWEN_TOKENS,
     .more = qwen3,
     .pixels = qwen3_pixels},
    {.word = "gemma3",
     .archs = gemma3_archs,
     .type = "gemma3",
     .tower = "siglip_vision_model",
     .gelu = "gelu_pytorch_tanh",
     .tokens = {{"image_token_index", {"<image_soft_token>"}},
                {"boi_token_index", {"<start_of_image>"}},
                {"eoi_token_index", {"<end_of_image>"}}},
     .more = gemma3,
     .pixels = square_pixels},
    {.word = "pixtral",
     .archs = pixtral_archs,
     .find_type = pixtral_type,
     .tower = "pixtral",
     .gelu = "gelu",
     .tokens = {{"image_token_index", {"[IMG]"}}},
     .more = pixtral,
     .pixels = pixtral_pixels,
     .layout = {.paired = true}},
    {.word = "lightonocr",
     .archs = lighton_archs,
     .type = "lighton_ocr",
     .tower = "pixtral",
     .gelu = "gelu",
     .tokens = {{"image_token_id", {"<|image_pad|>"}}},
     .more = pixtral,
     .pixels = pixtral_pixels,
     .layout = {.paired = true}},
    {.word = "idefics3",
     .archs = idefics3_archs,
     .type = "idefics3",
     .tower = "idefics3_vision",
     .gelu = "gelu_pytorch_tanh",
     .tokens = {{"image_token_id", {"<image>"}}},
     .more = idefics3,
     .pixels = idefics3_pixels},
    {.word = "internvl",
     .type = "internvl",
     .tower = "internvl_vision",
     .gelu = "gelu",
     .tokens = {{"image_token_id", {"<IMG_CONTEXT>"}}},
     .more = internvl,
     .pixels = internvl_pixels,
     .layout = {.plain = true}},
    {.word = "nemotron_v2_vl",
     .archs = nemotron_archs,
     .type = "NemotronH_Nano_VL_V2",
     .tower = "radio",
     .gelu = "gelu",
     .tokens = {{"image_token_id", {"<image>"}}},
     .more = nemotron,
     .pixels = nemotron_pixels,
     .layout = {.plain = true}},
    {.word = "lfm2",
     .archs = lfm2_archs,
     .type = "lfm2_vl",
     .tower = "siglip2_vision_model",
     .gelu = "gelu_pytorch_tanh",
     .tokens = {{"image_token_id", {"<image>"}}},
     .more = lfm2,
     .layout = {.channels_last = true}},
    {.word = "kimik25",
     .archs = kimi_archs,
     .type = "kimi_k25",
     .tower = "kimi_k25_vision",
     .gelu = "gelu_pytorch_tanh",
     .tokens = {{"media_placeholder_token_id", {"<|media_pad|>"}}},
     .more = kimi,
     .pixels = k25_pixels,
     .layout = {.axes_apart = true}},
    {.word = "kimivl",
     .archs = kimi_archs,
     .type = "kimi_vl",
     .tower = "moonvit",
     .gelu = "gelu_pytorch_tanh",
     .tokens = {{"media_placeholder_token_id", {"<|media_pad|>"}}},
     .more = kimi,
     .pixels = kimi_pixels},
    {.word = "gemma4v",
     .archs = gemma4_archs,
     .type = "gemma4",
     .tower = "gemma4_vision",
     .gelu = "gelu_pytorch_tanh",
     .tokens = {{"image_token_id", {"<|image|>"}},
                {"boi_token_id", {"<|image>"}},
                {"eoi_token_id", {"<image|>"}}},
     .more = gemma4,
     .layout = {.plain = true, .channels_last = true}},
    {.word = "gemma4uv",
     .archs = gemma4_archs,
     .type = "gemma4_unified",
     .tower = "gemma4_unified_vision",
     .gelu = "gelu",
     .tokens = {{"image_token_id", {"<|image|>"}},
                {"boi_token_id", {"<|image>"}},
                {"eoi_token_id", {"<image|>"}}},
     .more = gemma4_unified,
     .layout = {.plain = true, .channels_last = true, .tables_apart = true}},
    {.word = "glm4v",
     .archs = glm_archs,
     .find_type = glm_type,
     .gelu = "gelu",
     .tokens = {{"image_token_id", {"<|image|>"}},
                {"image_start_token_id", {"<|begin_of_image|>"}},
                {"image_end_token_id", {"<|end_of_image|>"}}},
     .more = glm},
    {.word = "janus_pro",
     .archs = janus_archs,
     .type = "janus",
     .tower = "janus_vision_model",
     .gelu = "gelu",
     .tokens = {{"image_token_id", {"<image_placeholder>"}}},
     .more = janus,
     .pixels = square_pixels},
    {.word = "paddleocr",
     .archs = paddle_archs,
     .type = "paddleocr_vl",
     .gelu = "gelu_pytorch_tanh",
     .tokens = {{"image_token_id", {"<|IMAGE_PLACEHOLDER|>"}},
                {"vision_start_token_id", {"<|IMAGE_START|>"}},
                {"vision_end_token_id", {"<|IMAGE_END|>"}}},
     .more = paddle,
     .pixels = paddle_pixels},
    {.word = "qwen2.5o",
     .archs = qwen2_archs,
     .type = "qwen2_5_vl",
     .gelu = "gelu",
     .tokens = QWEN_TOKENS,
     .more = qwen2_5,
     .pixels = qwen2_pixels},
    {.word = "llama4",
     .archs = llama4_archs,
     .type = "llama4",
     .tower = "llama4_vision_model",
     .gelu = "gelu",
     .tokens = {{"image_token_index", {"<|patch|>"}}},
     .more = llama4,
     .pixels = square_pixels,
     .layout = {.plain = true}},
    {0},
};
