/* Step 3.7 and Step3-VL: the Perception Encoder (arXiv 2504.13181) under the names of its authors,
 * for crops of two sizes. Behind it two convolutions halve the grid, and one matrix makes the
 * features. */
#include "common/json/json.h"
#include "model-server/encoder/family.h"

enum { PATCHES, A, B };
enum { DOWN_1 = 1, DOWN_2, PROJECT };
static const char *const names[] = {[0] = "",
                                    [DOWN_1] = "vision_model.vit_downsampler1",
                                    [DOWN_2] = "vision_model.vit_downsampler2",
                                    [PROJECT] = "vit_large_projector",
                                    [PROJECT + 1] = NULL};

static uint32_t hidden_of(struct config *c)
{
    return config_u32_or(c, config_either(c, "width", "hidden_size"), 1536, 1, 1u << 14);
}

static void halve(struct conv_spec *s, uint8_t from, uint8_t to, uint32_t out, uint8_t name)
{
    struct conv_step c = conv_linear(from, to, out, name);
    c.size = 3;
    c.stride = 2;
    conv_add(s, c);
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const uint32_t hidden = hidden_of(c), patch = family_square(c, "patch_size", 14);
    const uint32_t side = family_square(c, "image_size", 728) / (patch ? patch : 1);
    config_only(c, "use_cls_token", false);
    config_only(c, "use_ln_pre", true);
    config_only(c, "use_ln_post", false);
    config_only(c, "use_abs_posemb", true);
    config_only(c, "use_rope2d", true);
    s->patch = s->cell = s->frames = s->project.join = 1;
    s->of_features = true;
    s->width = s->blocks.hidden = family_text_width(c);
    s->conv.names = names;
    s->conv.norm = (struct norm_spec){.kind = NORM_LAYER, .eps = 1e-5F}; /* there is none */
    s->conv.channels = hidden;
    s->conv.side = side;
    if (!side || side % 4) {
        config_fail(c, "`image_size` must be a multiple of four patches");
        return;
    }
    halve(&s->conv, PATCHES, A, 2 * hidden, DOWN_1);
    halve(&s->conv, A, B, 4 * hidden, DOWN_2);
    struct conv_step last = conv_linear(B, PATCHES, s->width, PROJECT);
    last.bias = json_bool(c->file, "projector_bias", false);
    conv_add(&s->conv, last);
}

static void configure_blocks(struct config *c, struct encoder_spec *s)
{
    struct decoder_spec *b = &s->blocks;
    family_blocks(c, s,
                  &(struct block_keys){config_either(c, "width", "hidden_size"),
                                       config_either(c, "layers", "num_hidden_layers"),
                                       config_either(c, "heads", "num_attention_heads"),
                                       "intermediate_size", "quick_gelu", 1536, 47, 16, 8960, 1e-5,
                                       14});
    const double ffn = b->hidden * config_num_or(c, "mlp_ratio", 8960.0 / 1536);
    if (ffn >= 1 && ffn <= 1 << 20)
        b->ffn = (uint32_t)ffn;
    else
        config_fail(c, "`mlp_ratio` is out of bounds");
    b->qkv = QKV_STACKED;
    b->embed_norm = b->no_final_norm = b->sub_scale = true;
    s->patch_bias = false;
    s->plain_positions = true;
    family_positions(c, s, POSITIONS_LINEAR, family_square(c, "image_size", 728));
    family_grid_rope(c, s, ROPE_GRID);
    b->rope[0].interleaved = true;
    family_columns_first(s);
    s->width = b->hidden;
}

#define TOWER    "vision_model."
#define LAYER(x) TOWER "transformer.resblocks.*." x
static const struct encoder_family blocks = {
    .names = {.names = {[W_PATCH] = TOWER "conv1",
                        [W_PATCH_POSITIONS] = TOWER "positional_embedding",
                        [W_EMBED_NORM] = TOWER "ln_pre",
                        [W_ATTN_NORM] = LAYER("ln_1"),
                        [W_MLP_NORM] = LAYER("ln_2"),
                        [W_QKV] = LAYER("attn.in_proj_"),
                        [W_O] = LAYER("attn.out_proj"),
                        [W_ATTN_SCALE] = LAYER("ls_1.gamma"),
                        [W_MLP_SCALE] = LAYER("ls_2.gamma"),
                        [W_UP] = LAYER("mlp.c_fc"),
                        [W_DOWN] = LAYER("mlp.c_proj")}},
    .configure = configure_blocks,
};
const struct encoder_family family_step3p7 = {
    .types = (const char *const[]){"step3p7", "step_robotics", NULL},
    .configure = configure,
    .before = &blocks,
};
