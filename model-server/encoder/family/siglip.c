/* Towers of SigLIP (arXiv 2303.15343): Gemma 3 (2503.19786), PaliGemma
 * (2407.07726), Idefics 3 (2408.12637), SmolVLM and ModernVBERT (2510.01149), LLaVA-OneVision
 * (2408.03326), R-4B (2508.21113), Bee (2510.13795), Aya Vision (2505.08751), Command A Vision,
 * Janus (2410.13848), DeepSeek-VL (2403.05525), PaddleOCR-VL (2510.14528), Keye-VL (2507.01949),
 * VideoLLaMA 3 (2501.13106); and of SigLIP 2 (2502.14786): LFM2-VL (2511.23404), Cosmos 3 Edge. */
#include "model-server/encoder/family.h"
#include <string.h>

static void siglip(struct config *c, struct encoder_spec *s, uint32_t image_size)
{
    family_siglip_blocks(c, s, 1152, 12, 16, 3072);
    family_positions(c, s, POSITIONS_TABLE,
                     config_u32_or(c, "image_size", image_size, 1, 1u << 14));
}

static void configure_gemma3(struct config *c, struct encoder_spec *s)
{
    siglip(c, s, 896);
    const double tokens = json_num(c->file, "mm_tokens_per_image", 256);
    uint32_t rows = 0;
    while ((rows + 1) * (rows + 1) <= tokens && rows < s->side)
        rows++;
    if (rows == 0 || rows * rows != tokens || s->side % rows) {
        config_fail(c, "`mm_tokens_per_image` does not divide %u x %u patches", s->side, s->side);
        return;
    }
    s->cell = s->side / rows;
    s->pool = true;
    s->project =
        (struct encoder_projection){.norm = true,
                                    .norm_spec = {NORM_RMS, s->blocks.norm.eps, 1},
                                    .norm_role = W_PROJECT_NORM,
                                    .join = 1,
                                    .linear = {{W_PROJECT_OUT, s->width, .plain_name = true}},
                                    .n_linears = 1};
}

/* `key` of config.json has how many patches of a side are one row of the text model. */
static void configure_shuffled(struct config *c, struct encoder_spec *s, uint32_t image_size,
                               const char *key, uint32_t factor_or)
{
    siglip(c, s, image_size);
    const double factor = json_num(c->file, key, factor_or);
    if (!(factor >= 1 && factor <= 16) || s->side % (uint32_t)factor) {
        config_fail(c, "`%s` does not divide %u patches", key, s->side);
        return;
    }
    s->cell = (uint32_t)factor;
    s->project = (struct encoder_projection){
        .join = s->cell * s->cell, .linear = {{W_PROJECT_OUT, s->width}}, .n_linears = 1};
}

static void configure_idefics3(struct config *c, struct encoder_spec *s)
{
    configure_shuffled(c, s, 364, "scale_factor", 2);
}

static void configure_modernvbert(struct config *c, struct encoder_spec *s)
{
    configure_shuffled(c, s, 224, "pixel_shuffle_factor", 4);
}

static void configure_paligemma(struct config *c, struct encoder_spec *s)
{
    siglip(c, s, 224);
    if (config_u32_or(c, "projection_dim", s->width, 1, 1u << 20) != s->width)
        config_fail(c, "`projection_dim` must be the text model's hidden_size");
    s->project = (struct encoder_projection){
        .join = 1, .linear = {{W_PROJECT_OUT, s->width, .bias = true}}, .n_linears = 1};
}

static void configure_deepseek(struct config *c, struct encoder_spec *s)
{
    family_siglip_blocks(c, s, 768, 12, 12, 3072);
    family_positions(c, s, POSITIONS_TABLE, family_square(c, "image_size", 224));
    family_two_matrices(s, true, ACT_GELU);
}

static void configure_janus(struct config *c, struct encoder_spec *s)
{
    family_blocks(c, s, &(struct block_keys){BLOCK_KEYS, "gelu", 1024, 24, 16, 1, 1e-6});
    const double ratio = config_num_or(c, "mlp_ratio", 4);
    s->blocks.ffn = ratio > 0 && ratio <= 64 ? (uint32_t)(s->blocks.hidden * ratio) : 0;
    if (!s->blocks.ffn)
        config_fail(c, "`mlp_ratio` is out of bounds");
    s->blocks.bias.qkv = config_bool_or(c, "attention_bias", true);
    family_positions(c, s, POSITIONS_TABLE, family_square(c, "image_size", 384));
    config_only(c, "use_qk_norm", false);
    if (config_u32_or(c, "depth", 2, 1, 64) != 2)
        config_fail(c, "`depth` must be 2");
    if (config_u32_or(c, "projection_dim", 2048, 1, 1u << 20) != s->width)
        config_fail(c, "`projection_dim` must be the text model's hidden_size");
    family_two_matrices(s, true, s->blocks.act);
}

/* SigLIP 2 for pictures of any shape: a grid of `num_patches` positions, interpolated with
 * antialiasing. */
static void siglip2(struct config *c, struct encoder_spec *s, uint32_t hidden_or,
                    uint32_t layers_or, uint32_t heads_or, uint32_t ffn_or)
{
    family_siglip_blocks(c, s, hidden_or, layers_or, heads_or, ffn_or);
    s->positions = POSITIONS_SMOOTHED;
    s->side = family_root(c, "num_patches", 256);
    s->patch_channels_last = true;
}

/* A projection's width between its matrices. */
static uint32_t projector_width(struct config *c, uint32_t def)
{
    const double n = json_num(c->file, "projector_hidden_size", def);
    if (n >= 1 && n <= 1 << 20)
        return (uint32_t)n;
    config_fail(c, "`projector_hidden_size` is out of bounds");
    return 1;
}

static void configure_lfm2(struct config *c, struct encoder_spec *s)
{
    const bool bias = json_bool(c->file, "projector_bias", true);
    const uint32_t middle = projector_width(c, 2560);
    const double factor = json_num(c->file, "downsample_factor", 2);
    siglip2(c, s, 768, 12, 12, 3072);
    if (json_num(c->file, "vision_feature_layer", -1) != -1)
        config_fail(c, "`vision_feature_layer` must be -1");
    if (!(factor >= 1 && factor <= 16) || factor != (uint32_t)factor) {
        config_fail(c, "`downsample_factor` is out of bounds");
        return;
    }
    s->cell = (uint32_t)factor;
    s->project = (struct encoder_projection){
        .norm = json_bool(c->file, "projector_use_layernorm", true),
        .norm_joined = true,
        .norm_bias = true,
        .norm_spec = {NORM_LAYER, 1e-5F, 0},
        .norm_role = W_PROJECT_NORM,
        .join = s->cell * s->cell,
        .linear = {{W_PROJECT_IN, middle, bias}, {W_PROJECT_OUT, s->width, bias, true}},
        .n_linears = 2,
        .act = family_word_act(c, "projector_hidden_act", "gelu")};
}

/* The merger is Qwen3-VL's, with a width of its own. */
static void configure_cosmos3(struct config *c, struct encoder_spec *s)
{
    siglip2(c, s, 1152, 27, 16, 4304);
    s->cell = config_u32_or(c, "spatial_merge_size", 2, 1, 16);
    family_merger(s, &s->project, s->width);
    s->project.norm_spec.eps = 1e-6F;
    s->project.linear[0].rows = projector_width(c, 11520);
}

/* SigLIP for pictures of any shape, with rotations by row and column; the projector is Qwen2-VL's.
 */
static void configure_paddle(struct config *c, struct encoder_spec *s)
{
    family_siglip_blocks(c, s, 1152, 27, 16, 4304);
    family_positions(c, s, POSITIONS_LINEAR, family_square(c, "image_size", 384));
    s->cell = config_u32_or(c, "spatial_merge_size", 2, 1, 16);
    family_grid_rope(c, s, ROPE_GRID);
    family_merger(s, &s->project, s->width);
    s->project.norm_spec.eps = 1e-5F;
}

/* Keye-VL 1.5: the norm is one of a cell's patches together. */
static void configure_keye(struct config *c, struct encoder_spec *s)
{
    configure_paddle(c, s);
    s->project.norm_joined = true;
}

/* SigLIP for pictures of any shape with rotations alone; each patch is a feature. */
static void configure_video_llama(struct config *c, struct encoder_spec *s)
{
    family_siglip_blocks(c, s, 768, 12, 12, 3072);
    family_grid_rope(c, s, ROPE_GRID);
    family_two_matrices(s, true, ACT_GELU);
}

/* Features are the hidden states of one layer, without the final norm. */
static void all_of_layer(struct config *c, struct encoder_spec *s)
{
    s->blocks.n_layers = family_layers_used(c, s->blocks.n_layers, "vision_feature_layer", -1);
    s->blocks.no_final_norm = true;
    family_only_word(c, "vision_feature_select_strategy", "full");
}

static void configure_onevision(struct config *c, struct encoder_spec *s)
{
    const bool bias = json_bool(c->file, "multimodal_projector_bias", true);
    siglip(c, s, 384);
    all_of_layer(c, s);
    s->tiles_joined = true;
    family_two_matrices(s, bias, family_word_act(c, "projector_hidden_act", "gelu"));
}

/* R-4B and Bee: LLaVA-OneVision with a norm before the matrices. `times`: the width between them,
 * in widths of the text model. */
static void configure_normed(struct config *c, struct encoder_spec *s, uint32_t times)
{
    siglip(c, s, 384);
    all_of_layer(c, s);
    s->tiles_joined = true;
    family_two_matrices(s, true, ACT_GELU);
    s->project.norm = s->project.norm_bias = true;
    s->project.norm_spec = (struct norm_spec){NORM_LAYER, 1e-6F, 0};
    s->project.norm_role = W_PROJECT_NORM;
    s->project.linear[0].rows = times * s->width;
}

static void configure_r(struct config *c, struct encoder_spec *s) { configure_normed(c, s, 1); }

static void configure_bee(struct config *c, struct encoder_spec *s) { configure_normed(c, s, 4); }

/* A gated MLP on the concatenated patches of a cell. */
static void project_cells(struct config *c, struct encoder_spec *s, double middle)
{
    const double factor = json_num(c->file, "downsample_factor", 2);
    if (!(factor >= 1 && factor <= 16) || s->side % (uint32_t)factor || !(middle >= 2) ||
        middle > 1 << 20 || (uint32_t)middle % 2) {
        config_fail(c,
                    "`downsample_factor` does not divide %u patches, or "
                    "`alignment_intermediate_size` is not even",
                    s->side);
        return;
    }
    s->cell = (uint32_t)factor;
    s->project = (struct encoder_projection){
        .join = s->cell * s->cell,
        .linear = {{W_PROJECT_IN, (uint32_t)middle, .bias = true, .gated = true},
                   {W_PROJECT_OUT, s->width, .bias = true}},
        .n_linears = 2,
        .gate_act = ACT_SILU};
}

static void configure_aya(struct config *c, struct encoder_spec *s)
{
    siglip(c, s, 384);
    all_of_layer(c, s);
    project_cells(c, s, json_num(c->file, "alignment_intermediate_size", s->width));
    s->project.norm = s->project.norm_joined = s->project.norm_bias = true;
    s->project.norm_spec =
        (struct norm_spec){NORM_LAYER, (float)json_num(c->file, "adapter_layer_norm_eps", 1e-6), 0};
    s->project.norm_role = W_PROJECT_NORM;
}

static void configure_cohere2(struct config *c, struct encoder_spec *s)
{
    siglip(c, s, 512);
    project_cells(c, s, json_num(c->file, "alignment_intermediate_size", 36864));
}

#define NAMES_TOWER NAMES_SIGLIP("model.vision_tower.vision_model.", "model.vision_tower.")
const struct encoder_family family_llava_onevision = {
    .types = (const char *const[]){"llava_onevision", NULL},
    .names = {.names = {NAMES_TOWER, [W_ROW_END] = "model.image_newline",
                        [W_PROJECT_IN] = "model.multi_modal_projector.linear_1",
                        [W_PROJECT_OUT] = "model.multi_modal_projector.linear_2"},
              .prefix = "model."},
    .configure = configure_onevision,
    .tower = "siglip_vision_model",
};
#define NAMES_NORMED                                                                               \
    NAMES_TOWER, [W_ROW_END] = "model.image_newline",                                              \
                 [W_PROJECT_NORM] = "model.multi_modal_projector.pre_norm",                        \
                 [W_PROJECT_IN] = "model.multi_modal_projector.linear_1",                          \
                 [W_PROJECT_OUT] = "model.multi_modal_projector.linear_2"
const struct encoder_family family_r = {
    .types = (const char *const[]){"R", NULL},
    .names = {.names = {NAMES_NORMED}, .prefix = "model."},
    .configure = configure_r,
    .tower = "siglip_vision_model",
};
const struct encoder_family family_bee = {
    .types = (const char *const[]){"bee", NULL},
    .names = {.names = {NAMES_NORMED}, .prefix = "model."},
    .configure = configure_bee,
    .tower = "siglip_vision_model",
};
const struct encoder_family family_aya = {
    .types = (const char *const[]){"aya_vision", NULL},
    .names = {.names = {NAMES_TOWER, [W_PROJECT_NORM] = "model.multi_modal_projector.layernorm",
                        [W_PROJECT_IN] = "model.multi_modal_projector.linear_1",
                        [W_PROJECT_OUT] = "model.multi_modal_projector.linear_2"},
              .prefix = "model."},
    .configure = configure_aya,
    .tower = "siglip_vision_model",
};
const struct encoder_family family_cohere2 = {
    .types = (const char *const[]){"cohere2_vision", NULL},
    .names = {.names = {NAMES_TOWER, [W_PROJECT_IN] = "model.multi_modal_projector.linear_1",
                        [W_PROJECT_OUT] = "model.multi_modal_projector.linear_2"},
              .prefix = "model."},
    .configure = configure_cohere2,
    .tower = "siglip_vision_model",
};
const struct encoder_family family_lfm2_vl = {
    .types = (const char *const[]){"lfm2_vl", NULL},
    .names = {.names = {NAMES_TOWER, [W_PROJECT_NORM] = "model.multi_modal_projector.layer_norm",
                        [W_PROJECT_IN] = "model.multi_modal_projector.linear_1",
                        [W_PROJECT_OUT] = "model.multi_modal_projector.linear_2"},
              .prefix = "model."},
    .configure = configure_lfm2,
    .tower = "siglip2_vision_model",
};
const struct encoder_family family_gemma3 = {
    .types = (const char *const[]){"gemma3", "shieldgemma2", NULL},
    .names = {.names = {NAMES_SIGLIP("model.vision_tower.vision_model.", "model.vision_tower."),
                        [W_PROJECT_NORM] = "model.multi_modal_projector.mm_soft_emb_norm",
                        [W_PROJECT_OUT] = "model.multi_modal_projector.mm_input_projection_weight"},
              .prefix = "model."},
    .configure = configure_gemma3,
};
const struct encoder_family family_idefics3 = {
    .types = (const char *const[]){"idefics3", "smolvlm", NULL},
    .names = {.names = {NAMES_SIGLIP("model.vision_model.", "vision_model."),
                        [W_PROJECT_OUT] = "model.connector.modality_projection.proj"},
              .prefix = "model."},
    .configure = configure_idefics3,
};
const struct encoder_family family_modernvbert = {
    .types = (const char *const[]){"modernvbert", NULL},
    .names = {.names = {NAMES_SIGLIP("model.vision_model.vision_model.", "model.vision_model."),
                        [W_PROJECT_OUT] = "model.connector.modality_projection"},
              .prefix = "model."},
    .configure = configure_modernvbert,
};
const struct encoder_family family_paligemma = {
    .types = (const char *const[]){"paligemma", NULL},
    .names = {.names = {NAMES_SIGLIP("model.vision_tower.vision_model.", "model.vision_tower."),
                        [W_PROJECT_OUT] = "model.multi_modal_projector.linear"},
              .prefix = "model.|model.model."},
    .configure = configure_paligemma,
};

#define VIDEO_LLAMA "model.vision_model."
const struct encoder_family family_video_llama_3 = {
    .types = (const char *const[]){"video_llama_3", NULL},
    .names =
        {.names =
             {NAMES_SIGLIP(VIDEO_LLAMA, VIDEO_LLAMA), [W_PROJECT_IN] = "model.projector.readout.0",
              [W_PROJECT_OUT] = "model.projector.readout.2"},
         .prefix = "model."},
    .configure = configure_video_llama,
};

#define PROJECT(x) EITHER("mlp_AR.", "model.projector.", x)
#define NAMES_PADDLE                                                                               \
    NAMES_SIGLIP("visual.vision_model.", "model.visual.vision_model."),                            \
        [W_PROJECT_NORM] = PROJECT("pre_norm"), [W_PROJECT_IN] = PROJECT("linear_1"),              \
        [W_PROJECT_OUT] = PROJECT("linear_2")
const struct encoder_family family_paddleocr_vl = {
    .types = (const char *const[]){"paddleocr_vl", "Keye", NULL},
    .names = {.names = {NAMES_PADDLE}},
    .configure = configure_paddle,
};
const struct encoder_family family_keye = {
    .types = (const char *const[]){"KeyeVL1_5", NULL},
    .names = {.names = {NAMES_PADDLE}},
    .configure = configure_keye,
};

#define COSMOS3 "model.visual."
const struct encoder_family family_cosmos3_edge = {
    .types = (const char *const[]){"cosmos3_edge", NULL},
    .names = {.names = {NAMES_SIGLIP(COSMOS3, COSMOS3), [W_PROJECT_NORM] = "model.projector.norm",
                        [W_PROJECT_IN] = "model.projector.linear_fc1",
                        [W_PROJECT_OUT] = "model.projector.linear_fc2"}},
    .configure = configure_cosmos3,
};

#define JANUS(x) EITHER("model.vision_model.vision_model.", "model.vision_model.", x)
const struct encoder_family family_deepseek_vl = {
    .types = (const char *const[]){"deepseek_vl", NULL},
    .names =
        {.names =
             {NAMES_SIGLIP("model.vision_model.vision_model.", "model.vision_model."),
              [W_PROJECT_IN] = "model.aligner.linear1", [W_PROJECT_OUT] = "model.aligner.linear2"},
         .prefix = "model."},
    .configure = configure_deepseek,
    .tower = "siglip_vision_model",
};
const struct encoder_family family_janus = {
    .types = (const char *const[]){"janus", NULL},
    .names = {.names = {NAMES_SIGLIP_BUT_O("model.vision_model.vision_model.",
                                           "model.vision_model."),
                        [W_O] = JANUS("encoder.layers.*.self_attn.projection_layer"),
                        [W_PROJECT_IN] = "model.aligner.fc1",
                        [W_PROJECT_OUT] = "model.aligner.hidden_layers.0"},
              .prefix = "model."},
    .configure = configure_janus,
};
