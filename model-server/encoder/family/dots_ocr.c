/* The tower of dots.ocr (rednote, https://github.com/rednote-hilab/dots.ocr): blocks of Qwen2.5-VL
 * without windows, with a norm of the patches and a last one, and Qwen2-VL's merger. */
#include "model-server/encoder/family.h"

static void configure(struct config *c, struct encoder_spec *s)
{
    struct decoder_spec *b = &s->blocks;
    family_blocks(c, s,
                  &(struct block_keys){"embed_dim", "num_hidden_layers", "num_attention_heads",
                                       "intermediate_size", "silu", 1536, 42, 12, 4224, 1e-5, 14});
    b->norm =
        (struct norm_spec){.kind = NORM_RMS, .eps = (float)config_num_or(c, "rms_norm_eps", 1e-5)};
    b->bias.norm = false;
    b->bias.qkv = b->bias.o = b->bias.mlp = config_bool_or(c, "use_bias", false);
    b->qkv = QKV_STACKED;
    b->mlp = MLP_GATED;
    b->embed_norm = true;
    b->no_final_norm = !config_bool_or(c, "post_norm", true);
    config_only(c, "is_causal", false);
    s->cell = config_u32_or(c, "spatial_merge_size", 2, 1, 8);
    family_grid_rope(c, s, ROPE_GRID);
    s->width = config_u32_or(c, "hidden_size", 1536, 1, 1u << 20);
    family_merger(s, &s->project, s->width);
    s->project.norm_spec = (struct norm_spec){NORM_LAYER, 1e-6F, 0};
    s->project.norm_bias = true;
}

/* Files have attention's matrices under two names. */
#define TOWER "vision_tower."
#define LAYER TOWER "blocks.*."
const struct encoder_family family_dots_ocr = {
    .types = (const char *const[]){"dots_ocr", NULL},
    .names = {.names = {[W_PATCH] = TOWER "patch_embed.patchifier.proj",
                        [W_EMBED_NORM] = TOWER "patch_embed.patchifier.norm",
                        [W_ATTN_NORM] = LAYER "norm1",
                        [W_MLP_NORM] = LAYER "norm2",
                        [W_QKV] = LAYER "attn.qkv|" LAYER "attn.qkv_proj",
                        [W_O] = LAYER "attn.proj|" LAYER "attn.out_proj",
                        [W_GATE] = LAYER "mlp.fc1",
                        [W_UP] = LAYER "mlp.fc3",
                        [W_DOWN] = LAYER "mlp.fc2",
                        [W_FINAL_NORM] = TOWER "post_trunk_norm",
                        [W_PROJECT_NORM] = TOWER "merger.ln_q",
                        [W_PROJECT_IN] = TOWER "merger.mlp.0",
                        [W_PROJECT_OUT] = TOWER "merger.mlp.2"}},
    .configure = configure,
};
