/* LLaVA 1.5 (arXiv 2310.03744) and LLaVA-NeXT: the tower of CLIP (2103.00020), or that of SigLIP
 * (2303.15343), as in LLaVA-Interleave (2407.07895) and Granite Vision (2502.09927). */
#include "model-server/encoder/family.h"
#include <string.h>

static bool is_type(const struct config *c, const char *type)
{
    return strcmp(json_str(c->file, "model_type", ""), type) == 0;
}

static void add_side(struct config *c, struct encoder_spec *s, const char *key, double state)
{
    const uint32_t layer = family_layer_at(c, s->blocks.n_layers, key, state);
    for (uint32_t i = 0; i < s->n_sides; i++)
        if (s->side_at[i] + 1 == layer)
            config_fail(c, "`%s` has a layer twice", key);
    if (s->n_sides == ENCODER_MAX_TAPS)
        config_fail(c, "`%s` has more than %d layers", key, ENCODER_MAX_TAPS);
    else
        s->side_at[s->n_sides++] = layer - 1;
}

/* One layer, or several side by side. */
static void read_layers(struct config *c, struct encoder_spec *s)
{
    static const double of_vip[] = {-2, -5, -8, -11, 6};
    const bool plural = json_get(c->file, "vision_feature_layers");
    const char *key = plural ? "vision_feature_layers" : "vision_feature_layer";
    const cJSON *list = json_get(c->file, key), *at;
    uint32_t last = 0;
    for (size_t i = 0; !list && is_type(c, "vipllava") && i < sizeof(of_vip) / sizeof(*of_vip); i++)
        add_side(c, s, key, of_vip[i]);
    if (!cJSON_IsArray(list) && !s->n_sides) {
        s->blocks.n_layers = family_layers_used(c, s->blocks.n_layers, key, -2);
        return;
    }
    for (at = json_first(list); at && !c->failed; at = at->next)
        add_side(c, s, key, cJSON_IsNumber(at) ? at->valuedouble : 0);
    for (uint32_t i = 0; i < s->n_sides; i++)
        last = s->side_at[i] >= last ? s->side_at[i] + 1 : last;
    if (!last)
        config_fail(c, "`%s` is empty", key);
    s->blocks.n_layers = last ? last : 1;
}

static void project(struct config *c, struct encoder_spec *s)
{
    const bool bias = json_bool(c->file, "multimodal_projector_bias", true);
    s->feature_scale = family_feature_scale(c);
    s->tiles_joined = is_type(c, "llava_next") || is_type(c, "llava_next_video");
    family_two_matrices(s, bias, family_word_act(c, "projector_hidden_act", "gelu"));
    if (s->n_sides)
        s->project.join = s->n_sides;
}

/* Whether the first row, of CLIP the class token, becomes a feature. */
static bool keeps_first(struct config *c)
{
    const char *select = json_str(c->file, "vision_feature_select_strategy", "default");
    if (strcmp(select, "default") != 0 && strcmp(select, "full") != 0)
        config_fail(c, "`vision_feature_select_strategy`: `%.40s` is not supported", select);
    return strcmp(select, "full") == 0;
}

static void configure_siglip(struct config *c, struct encoder_spec *s)
{
    family_siglip_blocks(c, s, 768, 12, 12, 3072);
    if (!keeps_first(c)) /* it is a patch here */
        config_fail(c, "`vision_feature_select_strategy` must be full");
    read_layers(c, s);
    s->blocks.no_final_norm = true;
    family_positions(c, s, POSITIONS_TABLE, config_u32_or(c, "image_size", 224, 1, 1u << 14));
    project(c, s);
}

static void configure(struct config *c, struct encoder_spec *s)
{
    family_blocks(c, s, &(struct block_keys){BLOCK_KEYS, "quick_gelu", 1024, 24, 16, 4096, 1e-5});
    read_layers(c, s);
    s->keeps_class = keeps_first(c);
    s->blocks.embed_norm = s->blocks.no_final_norm = true;
    s->patch_bias = false;
    s->class_token = true;
    s->positions = POSITIONS_TABLE;
    s->side = config_u32_or(c, "image_size", 336, 1, 1u << 14) / s->patch;
    project(c, s);
}

/* ViP-LLaVA (arXiv 2312.00784): a norm of several layers side by side. */
static void configure_vip(struct config *c, struct encoder_spec *s)
{
    configure(c, s);
    s->project.norm = s->project.norm_joined = s->project.norm_bias = true;
    s->project.norm_role = W_PROJECT_NORM;
    s->project.norm_spec = (struct norm_spec){
        NORM_LAYER, (float)json_num(c->file, "projector_layernorm_eps", 1e-5), 0};
}

#define TOWER "model.vision_tower."
#define NAMES_CLIP(tower)                                                                          \
    NAMES_SIGLIP(tower "vision_model.", tower),                                                    \
        [W_EMBED_NORM] = EITHER(tower "vision_model.", tower, "pre_layrnorm"),                     \
        [W_CLASS_TOKEN] = EITHER(tower "vision_model.", tower, "embeddings.class_embedding"),      \
        [W_PROJECT_IN] = "model.multi_modal_projector.linear_1",                                   \
        [W_PROJECT_OUT] = "model.multi_modal_projector.linear_2"
const struct encoder_family family_llava = {
    .types = (const char *const[]){"llava", "llava_next", "llava_next_video", NULL},
    .names = {.names = {NAMES_CLIP(TOWER), [W_ROW_END] = "model.image_newline"},
              .prefix = "model."},
    .configure = configure,
    .tower = "clip_vision_model",
};
const struct encoder_family family_vipllava = {
    .types = (const char *const[]){"vipllava", NULL},
    .names = {.names = {NAMES_CLIP(TOWER), [W_PROJECT_NORM] =
                                               "model.multi_modal_projector.projector_layernorm"},
              .prefix = "model."},
    .configure = configure_vip,
    .tower = "clip_vision_model",
};
/* Video-LLaVA (arXiv 2311.10122), images only: they have a tower of their own. */
const struct encoder_family family_video_llava = {
    .types = (const char *const[]){"video_llava", NULL},
    .names = {.names = {NAMES_CLIP("model.image_tower.")}, .prefix = "model."},
    .configure = configure,
    .tower = "clip_vision_model",
};
const struct encoder_family family_llava_siglip = {
    .types = (const char *const[]){"llava", "llava_next", "llava_next_video", NULL},
    .names =
        {.names = {NAMES_SIGLIP(TOWER "vision_model.", TOWER), [W_ROW_END] = "model.image_newline",
                   [W_PROJECT_IN] = "model.multi_modal_projector.linear_1",
                   [W_PROJECT_OUT] = "model.multi_modal_projector.linear_2"},
         .prefix = "model."},
    .configure = configure_siglip,
    .tower = "siglip_vision_model",
};
