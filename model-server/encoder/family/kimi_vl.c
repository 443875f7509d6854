/* MoonViT, the tower of Kimi-VL (arXiv 2504.07491): learned positions by cubic convolution,
 * and rotations by column and row alternately. */
#include "model-server/encoder/family.h"

static void configure(struct config *c, struct encoder_spec *s)
{
    family_blocks(c, s,
                  &(struct block_keys){"hidden_size", "num_hidden_layers", "num_attention_heads",
                                       "intermediate_size", "gelu_pytorch_tanh", 1152, 27, 16, 4304,
                                       1e-5});
    s->blocks.qkv = QKV_STACKED;
    s->positions = POSITIONS_CUBIC;
    s->side = config_u32_or(c, "init_pos_emb_height", 64, 1, 1u << 12);
    if (config_u32_or(c, "init_pos_emb_width", 64, 1, 1u << 12) != s->side)
        config_fail(c, "`init_pos_emb_width` must be `init_pos_emb_height`");
    s->cell = family_square(c, "merge_kernel_size", 2);
    if (s->cell > 16) {
        config_fail(c, "`merge_kernel_size` is out of bounds");
        s->cell = 1;
    }
    family_grid_rope(c, s, ROPE_GRID_WOVEN);
    s->blocks.rope[0].interleaved = true;
    const uint32_t joined = s->blocks.hidden * s->cell * s->cell;
    s->project =
        (struct encoder_projection){.norm = true,
                                    .norm_spec = {NORM_LAYER, 1e-5F, 0},
                                    .norm_bias = true,
                                    .norm_role = W_PROJECT_NORM,
                                    .join = s->cell * s->cell,
                                    .linear = {{W_PROJECT_IN, joined, true},
                                               {W_PROJECT_OUT, s->width, true, .act_before = true}},
                                    .n_linears = 2,
                                    .act = ACT_GELU};
}

#define LAYER "vision_tower.encoder.blocks.*."
const struct encoder_family family_kimi_vl = {
    .types = (const char *const[]){"kimi_vl", NULL},
    .names = {.names = {[W_PATCH] = "vision_tower.patch_embed.proj",
                        [W_PATCH_POSITIONS] = "vision_tower.patch_embed.pos_emb",
                        [W_ATTN_NORM] = LAYER "norm0",
                        [W_MLP_NORM] = LAYER "norm1",
                        [W_QKV] = LAYER "wqkv",
                        [W_O] = LAYER "wo",
                        [W_UP] = LAYER "mlp.fc0",
                        [W_DOWN] = LAYER "mlp.fc1",
                        [W_FINAL_NORM] = "vision_tower.encoder.final_layernorm",
                        [W_PROJECT_NORM] = "multi_modal_projector.pre_norm",
                        [W_PROJECT_IN] = "multi_modal_projector.linear_1",
                        [W_PROJECT_OUT] = "multi_modal_projector.linear_2"}},
    .configure = configure,
};
