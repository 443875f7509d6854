/* The tower of Llama 4: CLIP's blocks with rotations by column and row, pixel shuffle, and an MLP
 * before the projection. */
#include "model-server/encoder/family.h"
#include <string.h>

static void project(struct config *c, struct encoder_spec *s)
{
    const double ratio = config_num_or(c, "pixel_shuffle_ratio", 0.5);
    const uint32_t in = config_u32_or(c, "projector_input_dim", 4096, 1, 1u << 20);
    const uint32_t out = config_u32_or(c, "projector_output_dim", 4096, 1, 1u << 20);
    s->cell = ratio > 0.06 && ratio <= 1 ? (uint32_t)(1 / ratio) : 0;
    if (!s->cell || s->cell * ratio != 1 || s->side % s->cell) {
        config_fail(c, "`pixel_shuffle_ratio` must be 1, 1/2, 1/4 or 1/8 and divide %u patches",
                    s->side);
        s->cell = 1;
    }
    if (s->blocks.ffn != s->blocks.hidden * s->cell * s->cell)
        config_fail(c, "`intermediate_size` must be that of %u x %u patches", s->cell, s->cell);
    if (in != out || config_u32_or(c, "vision_output_dim", 7680, 1, 1u << 20) != out)
        config_fail(c, "`projector_input_dim`, `projector_output_dim` and `vision_output_dim` "
                       "must be equal");
    s->project =
        (struct encoder_projection){.join = s->cell * s->cell,
                                    .linear = {{W_PROJECT_JOINED, in},
                                               {W_PROJECT_IN, out, .act_before = true},
                                               {W_PROJECT_OUT, s->width, .act_before = true}},
                                    .n_linears = 3,
                                    .act = ACT_GELU};
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const struct block_keys keys = {"hidden_size",
                                    "num_hidden_layers",
                                    "num_attention_heads",
                                    "intermediate_size",
                                    "gelu",
                                    768,
                                    34,
                                    16,
                                    5632,
                                    1e-5};
    family_blocks(c, s, &keys);
    s->blocks.norm.eps = 1e-5F; /* norm_eps is unused, as in transformers */
    if (s->blocks.act != ACT_GELU)
        config_fail(c, "`hidden_act` must be gelu");
    s->blocks.embed_norm = true;
    s->patch_bias = false;
    s->class_token = s->class_last = s->plain_positions = true;
    s->positions = POSITIONS_TABLE;
    s->side = family_square(c, "image_size", 448) / s->patch;
    family_grid_rope(c, s, ROPE_GRID);
    s->blocks.rope[0].interleaved = true;
    s->first_turn = 1;
    family_columns_first(s);
    config_only(c, "multi_modal_projector_bias", false);
    if (strcmp(config_str_or(c, "vision_feature_select_strategy", "default"), "default") != 0)
        config_fail(c, "`vision_feature_select_strategy` must be default");
    project(c, s);
}

#define LAYER "vision_model.model.layers.*."
const struct encoder_family family_llama4 = {
    .types = (const char *const[]){"llama4", NULL},
    .names = {.names = {[W_PATCH] = "vision_model.patch_embedding.linear",
                        [W_PATCH_POSITIONS] = "vision_model.positional_embedding_vlm",
                        [W_CLASS_TOKEN] = "vision_model.class_embedding",
                        [W_EMBED_NORM] = "vision_model.layernorm_pre",
                        [W_FINAL_NORM] = "vision_model.layernorm_post",
                        [W_ATTN_NORM] = LAYER "input_layernorm",
                        [W_MLP_NORM] = LAYER "post_attention_layernorm",
                        [W_Q] = LAYER "self_attn.q_proj",
                        [W_K] = LAYER "self_attn.k_proj",
                        [W_V] = LAYER "self_attn.v_proj",
                        [W_O] = LAYER "self_attn.o_proj",
                        [W_UP] = LAYER "mlp.fc1",
                        [W_DOWN] = LAYER "mlp.fc2",
                        [W_PROJECT_JOINED] = "vision_model.vision_adapter.mlp.fc1",
                        [W_PROJECT_IN] = "vision_model.vision_adapter.mlp.fc2",
                        [W_PROJECT_OUT] = "multi_modal_projector.linear_1"}},
    .configure = configure,
};
