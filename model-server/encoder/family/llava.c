/* LLaVA 1.5 (arXiv 2310.03744) and LLaVA-NeXT: the tower of CLIP (2103.00020). */
#include "model-server/encoder/family.h"
#include <string.h>

static void configure(struct config *c, struct encoder_spec *s)
{
    family_blocks(c, s,
                  &(struct block_keys){"hidden_size", "num_hidden_layers", "num_attention_heads",
                                       "intermediate_size", "quick_gelu", 1024, 24, 16, 4096,
                                       1e-5});
    const char *select = json_str(c->file, "vision_feature_select_strategy", "default");
    const bool bias = json_bool(c->file, "multimodal_projector_bias", true);
    if (strcmp(select, "default") != 0)
        config_fail(c, "`vision_feature_select_strategy`: `%.40s` is not supported", select);
    if (strcmp(json_str(c->file, "projector_hidden_act", "gelu"), "gelu") != 0)
        config_fail(c, "`projector_hidden_act` must be gelu");
    s->blocks.n_layers = family_layers_used(c, s->blocks.n_layers, "vision_feature_layer", -2);
    s->blocks.embed_norm = s->blocks.no_final_norm = true;
    s->patch_bias = false;
    s->class_token = true;
    s->positions = POSITIONS_TABLE;
    s->side = config_u32_or(c, "image_size", 336, 1, 1u << 14) / s->patch;
    s->tiles_joined = strcmp(json_str(c->file, "model_type", ""), "llava_next") == 0;
    s->project = (struct encoder_projection){
        .join = 1,
        .linear = {{W_PROJECT_IN, s->width, bias}, {W_PROJECT_OUT, s->width, bias, true}},
        .n_linears = 2,
        .act = ACT_GELU};
}

#define TOWER "model.vision_tower."
const struct encoder_family family_llava = {
    .types = (const char *const[]){"llava", "llava_next", NULL},
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
