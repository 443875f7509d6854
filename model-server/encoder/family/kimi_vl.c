/* MoonViT, the tower of Kimi-VL (arXiv 2504.07491) and Kimi K2.5: learned positions by cubic
 * convolution, and rotations by column and row alternately. */
#include "common/json/json.h"
#include "model-server/encoder/family.h"
#include <string.h>

/* `height` and `width` are keys of the sides of the grid of learned positions. */
static void moonvit(struct config *c, struct encoder_spec *s, const struct block_keys *keys,
                    const char *height, const char *width)
{
    family_blocks(c, s, keys);
    s->blocks.qkv = QKV_STACKED;
    s->positions = POSITIONS_CUBIC;
    s->side = config_u32_or(c, height, 64, 1, 1u << 12);
    if (config_u32_or(c, width, 64, 1, 1u << 12) != s->side)
        config_fail(c, "`%s` must be `%s`", width, height);
    s->cell = family_square(c, "merge_kernel_size", 2);
    if (s->cell > 16) {
        config_fail(c, "`merge_kernel_size` is out of bounds");
        s->cell = 1;
    }
    family_grid_rope(c, s, ROPE_GRID_WOVEN);
    s->blocks.rope[0].interleaved = true;
    family_merger(s, &s->project, s->width);
    s->project.norm_spec.eps = 1e-5F;
}

static void configure(struct config *c, struct encoder_spec *s)
{
    moonvit(c, s, &(struct block_keys){BLOCK_KEYS, "gelu_pytorch_tanh", 1152, 27, 16, 4304, 1e-5},
            "init_pos_emb_height", "init_pos_emb_width");
}

/* Keys of the hub's files, or of those that transformers writes. An image is a single frame: what
 * is done between frames is not. */
static void configure_k25(struct config *c, struct encoder_spec *s)
{
    moonvit(c, s,
            &(struct block_keys){config_either(c, "vt_hidden_size", "hidden_size"),
                                 config_either(c, "vt_num_hidden_layers", "num_hidden_layers"),
                                 config_either(c, "vt_num_attention_heads", "num_attention_heads"),
                                 config_either(c, "vt_intermediate_size", "intermediate_size"),
                                 "gelu_pytorch_tanh", 1152, 27, 16, 4304, 1e-5},
            config_either(c, "init_pos_emb_height", "pos_emb_height"),
            config_either(c, "init_pos_emb_width", "pos_emb_width"));
    s->project.norm_spec.eps = (float)json_num(c->file, "projection_layer_norm_eps",
                                               config_num_or(c, "projector_ln_eps", 1e-5));
    config_only_word(c, "pos_emb_type", "divided_fixed");
    config_only_word(c, "mm_projector_type", "patchmerger");
    config_only_word(c, "projector_hidden_act", "gelu");
}

#define LAYER "vision_tower.encoder.blocks.*."
#define NAMES_MOONVIT                                                                              \
    [W_PATCH] = "vision_tower.patch_embed.proj",                                                   \
    [W_PATCH_POSITIONS] = "vision_tower.patch_embed.pos_emb", [W_ATTN_NORM] = LAYER "norm0",       \
    [W_MLP_NORM] = LAYER "norm1", [W_QKV] = LAYER "wqkv", [W_O] = LAYER "wo",                      \
    [W_UP] = LAYER "mlp.fc0", [W_DOWN] = LAYER "mlp.fc1",                                          \
    [W_FINAL_NORM] = "vision_tower.encoder.final_layernorm"

const struct encoder_family family_kimi_vl = {
    .types = (const char *const[]){"kimi_vl", NULL},
    .names = {.names = {NAMES_MOONVIT, [W_PROJECT_NORM] = "multi_modal_projector.pre_norm",
                        [W_PROJECT_IN] = "multi_modal_projector.linear_1",
                        [W_PROJECT_OUT] = "multi_modal_projector.linear_2"}},
    .configure = configure,
};
const struct encoder_family family_kimi_k25 = {
    .types = (const char *const[]){"kimi_k25", NULL},
    .names =
        {.names =
             {NAMES_MOONVIT, [W_PROJECT_NORM] = "mm_projector.pre_norm",
              [W_PROJECT_IN] = "mm_projector.proj.0", [W_PROJECT_OUT] = "mm_projector.proj.2"}},
    .configure = configure_k25,
};
