/* LLaVA 1.5 (arXiv 2310.03744) and LLaVA-NeXT: the tower of CLIP (2103.00020), or that of SigLIP
 * (2303.15343), as in LLaVA-Interleave (2407.07895) and Granite Vision (2502.09927). */
#include "model-server/encoder/family.h"
#include <string.h>

/* One layer, or several side by side. */
static void read_layers(struct config *c, struct encoder_spec *s)
{
    const cJSON *list = json_get(c->file, "vision_feature_layer"), *at;
    const uint32_t n = s->blocks.n_layers;
    uint32_t last = 0;
    if (!cJSON_IsArray(list)) {
        s->blocks.n_layers = family_layers_used(c, n, "vision_feature_layer", -2);
        return;
    }
    cJSON_ArrayForEach(at, list)
    {
        const double state = cJSON_IsNumber(at) ? at->valuedouble : 0;
        const uint32_t layer = family_layer_at(c, n, "vision_feature_layer", state);
        for (uint32_t i = 0; i < s->n_sides; i++)
            if (s->side_at[i] + 1 == layer)
                config_fail(c, "`vision_feature_layer` has a layer twice");
        if (s->n_sides == ENCODER_MAX_TAPS) {
            config_fail(c, "`vision_feature_layer` has more than %d layers", ENCODER_MAX_TAPS);
            return;
        }
        s->side_at[s->n_sides++] = layer - 1;
        last = layer > last ? layer : last;
    }
    if (!last)
        config_fail(c, "`vision_feature_layer` is empty");
    s->blocks.n_layers = last ? last : 1;
}

static void project(struct config *c, struct encoder_spec *s)
{
    const bool bias = json_bool(c->file, "multimodal_projector_bias", true);
    family_only_word(c, "projector_hidden_act", "gelu");
    s->feature_scale = family_feature_scale(c);
    s->tiles_joined = strcmp(json_str(c->file, "model_type", ""), "llava") != 0;
    family_two_matrices(s, bias, ACT_GELU);
}

static void only_strategy(struct config *c, const char *word)
{
    const char *select = json_str(c->file, "vision_feature_select_strategy", "default");
    if (strcmp(select, word) != 0)
        config_fail(c, "`vision_feature_select_strategy`: `%.40s` is not supported", select);
}

static void configure_siglip(struct config *c, struct encoder_spec *s)
{
    family_siglip_blocks(c, s, 768, 12, 12, 3072);
    only_strategy(c, "full");
    read_layers(c, s);
    s->blocks.no_final_norm = true;
    family_positions(c, s, POSITIONS_TABLE, config_u32_or(c, "image_size", 224, 1, 1u << 14));
    project(c, s);
}

static void configure(struct config *c, struct encoder_spec *s)
{
    family_blocks(c, s, &(struct block_keys){BLOCK_KEYS, "quick_gelu", 1024, 24, 16, 4096, 1e-5});
    only_strategy(c, "default");
    if (cJSON_IsArray(json_get(c->file, "vision_feature_layer")))
        config_fail(c, "`vision_feature_layer` must be one layer with a class token");
    s->blocks.n_layers = family_layers_used(c, s->blocks.n_layers, "vision_feature_layer", -2);
    s->blocks.embed_norm = s->blocks.no_final_norm = true;
    s->patch_bias = false;
    s->class_token = true;
    s->positions = POSITIONS_TABLE;
    s->side = config_u32_or(c, "image_size", 336, 1, 1u << 14) / s->patch;
    project(c, s);
}

#define TOWER "model.vision_tower."
const struct encoder_family family_llava = {
    .types = (const char *const[]){"llava", "llava_next", "llava_next_video", NULL},
    .names = {.names = {NAMES_SIGLIP(TOWER "vision_model.", TOWER),
                        [W_EMBED_NORM] = EITHER(TOWER "vision_model.", TOWER, "pre_layrnorm"),
                        [W_CLASS_TOKEN] =
                            EITHER(TOWER "vision_model.", TOWER, "embeddings.class_embedding"),
                        [W_ROW_END] = "model.image_newline",
                        [W_PROJECT_IN] = "model.multi_modal_projector.linear_1",
                        [W_PROJECT_OUT] = "model.multi_modal_projector.linear_2"},
              .prefix = "model."},
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
