/* InternVL 1.5 to 3.5 (arXiv 2404.16821, 2504.10479): InternViT, with the tensor names of
 * transformers and with those of its authors. It is also the tower of Intern-S1 (2508.15763), under
 * the first names, and of Skywork R1V (2504.05599), under the second. */
#include "model-server/encoder/family.h"
#include <string.h>

static void tower(struct config *c, struct encoder_spec *s, const char *norm)
{
    struct decoder_spec *b = &s->blocks;
    if (strcmp(norm, "rms_norm") == 0) {
        b->norm.kind = NORM_RMS;
        b->bias.norm = false;
    } else if (strcmp(norm, "layer_norm") != 0) {
        config_fail(c, "`norm_type`: `%.40s` is not supported", norm);
    }
    b->sub_scale = b->no_final_norm = true;
    s->class_token = s->plain_positions = true;
    s->positions = POSITIONS_TABLE;
}

static void project(struct config *c, struct encoder_spec *s)
{
    const double ratio = json_num(c->file, "downsample_ratio", 0.5);
    s->cell = ratio > 0.06 && ratio <= 1 ? (uint32_t)(1 / ratio) : 0;
    if (!s->cell || s->cell * ratio != 1 || s->side % s->cell) {
        config_fail(c, "`downsample_ratio` must be 1, 1/2, 1/4 or 1/8 and divide %u patches",
                    s->side);
        s->cell = 1;
    }
    s->project = (struct encoder_projection){
        .norm = true,
        .norm_joined = true,
        .norm_spec = {NORM_LAYER, 1e-5F, 0},
        .norm_bias = true,
        .norm_role = W_PROJECT_NORM,
        .join = s->cell * s->cell,
        .linear = {{W_PROJECT_IN, s->width, true}, {W_PROJECT_OUT, s->width, true, true}},
        .n_linears = 2,
        .act = family_word_act(c, "projector_hidden_act", "gelu")};
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const struct block_keys keys = {"hidden_size",
                                    "num_hidden_layers",
                                    "num_attention_heads",
                                    "intermediate_size",
                                    "gelu",
                                    1024,
                                    24,
                                    16,
                                    4096,
                                    1e-6};
    family_blocks(c, s, &keys);
    tower(c, s, config_str_or(c, "norm_type", "layer_norm"));
    s->side = family_square(c, "image_size", 448) / s->patch;
    s->blocks.bias.qkv = config_bool_or(c, "attention_bias", false);
    s->blocks.qk_norm = config_bool_or(c, "use_qk_norm", false) ? QK_NORM_ALL : QK_NORM_NONE;
    if (s->blocks.qk_norm != QK_NORM_NONE && s->blocks.norm.eps != 1e-6F)
        config_fail(c, "`layer_norm_eps` must be 1e-6 with `use_qk_norm`"); /* theirs always is */
    s->blocks.n_layers = family_layers_used(c, s->blocks.n_layers, "vision_feature_layer", -1);
    /* the last norm belongs to the output of all layers, not to a hidden state */
    s->blocks.no_final_norm = config_bool_or(c, "use_mean_pooling", true) ||
                              json_num(c->file, "vision_feature_layer", -1) != -1;
    if (!s->blocks.no_final_norm && s->blocks.norm.kind != NORM_LAYER)
        config_fail(c, "`use_mean_pooling` must be true with `norm_type` rms_norm");
    config_only(c, "use_absolute_position_embeddings", true);
    family_only_word(c, "vision_feature_select_strategy", "default");
    project(c, s);
}

/* Qianfan-OCR: InternVL's keys with other defaults, under the names of its authors. */
static void configure_qianfan(struct config *c, struct encoder_spec *s)
{
    configure(c, s);
    config_only(c, "use_mean_pooling", true); /* its authors' files have no last norm */
    s->blocks.qkv = QKV_STACKED;
    s->blocks.bias.qkv = config_bool_or(c, "attention_bias", true);
}

static void configure_chat(struct config *c, struct encoder_spec *s)
{
    const struct block_keys keys = {"hidden_size",
                                    "num_hidden_layers",
                                    "num_attention_heads",
                                    "intermediate_size",
                                    "gelu",
                                    3200,
                                    48,
                                    25,
                                    12800,
                                    1e-6};
    family_blocks(c, s, &keys);
    tower(c, s, config_str_or(c, "norm_type", "rms_norm"));
    s->side = family_square(c, "image_size", 448) / s->patch;
    s->blocks.qkv = QKV_STACKED;
    s->blocks.bias.qkv = config_bool_or(c, "qkv_bias", false);
    s->blocks.qk_norm = config_bool_or(c, "qk_normalization", true) ? QK_NORM_ALL : QK_NORM_NONE;
    s->blocks.n_layers = family_layers_used(c, s->blocks.n_layers, "select_layer", -1);
    family_only_word(c, "ps_version", "v2");
    project(c, s);
}

#define TOWER "model.vision_tower."
#define LAYER TOWER "encoder.layer.*."
const struct encoder_family family_internvl = {
    .types = (const char *const[]){"internvl", "interns1", NULL},
    .names = {.names = {[W_PATCH] = TOWER "embeddings.patch_embeddings.projection",
                        [W_PATCH_POSITIONS] = TOWER "embeddings.position_embeddings",
                        [W_CLASS_TOKEN] = TOWER "embeddings.cls_token",
                        [W_ATTN_NORM] = LAYER "layernorm_before",
                        [W_MLP_NORM] = LAYER "layernorm_after",
                        [W_Q] = LAYER "attention.q_proj",
                        [W_K] = LAYER "attention.k_proj",
                        [W_V] = LAYER "attention.v_proj",
                        [W_O] = LAYER "attention.projection_layer",
                        [W_Q_NORM] = LAYER "attention.q_norm",
                        [W_K_NORM] = LAYER "attention.k_norm",
                        [W_ATTN_SCALE] = LAYER "lambda_1",
                        [W_MLP_SCALE] = LAYER "lambda_2",
                        [W_UP] = LAYER "mlp.fc1",
                        [W_DOWN] = LAYER "mlp.fc2",
                        [W_FINAL_NORM] = TOWER "layernorm",
                        [W_PROJECT_NORM] = "model.multi_modal_projector.layer_norm",
                        [W_PROJECT_IN] = "model.multi_modal_projector.linear_1",
                        [W_PROJECT_OUT] = "model.multi_modal_projector.linear_2"},
              .prefix = "model."},
    .configure = configure,
};

#define CHAT_LAYER "vision_model.encoder.layers.*."
#define NAMES_CHAT                                                                                 \
    [W_PATCH] = "vision_model.embeddings.patch_embedding",                                         \
    [W_PATCH_POSITIONS] = "vision_model.embeddings.position_embedding",                            \
    [W_CLASS_TOKEN] = "vision_model.embeddings.class_embedding",                                   \
    [W_ATTN_NORM] = CHAT_LAYER "norm1", [W_MLP_NORM] = CHAT_LAYER "norm2",                         \
    [W_QKV] = CHAT_LAYER "attn.qkv", [W_O] = CHAT_LAYER "attn.proj",                               \
    [W_Q_NORM] = CHAT_LAYER "attn.q_norm", [W_K_NORM] = CHAT_LAYER "attn.k_norm",                  \
    [W_ATTN_SCALE] = CHAT_LAYER "ls1", [W_MLP_SCALE] = CHAT_LAYER "ls2",                           \
    [W_UP] = CHAT_LAYER "mlp.fc1", [W_DOWN] = CHAT_LAYER "mlp.fc2", [W_PROJECT_NORM] = "mlp1.0",   \
    [W_PROJECT_IN] = "mlp1.1", [W_PROJECT_OUT] = "mlp1.3"

const struct encoder_family family_internvl_chat = {
    .types = (const char *const[]){"internvl_chat", "skywork_chat", NULL},
    .names = {.names = {NAMES_CHAT}},
    .configure = configure_chat,
};
const struct encoder_family family_qianfan_ocr = {
    .types = (const char *const[]){"qianfan_ocr", NULL},
    .names = {.names = {NAMES_CHAT}},
    .configure = configure_qianfan,
};
