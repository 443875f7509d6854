/* The tower of GLM-4.1V, 4.5V and 4.6V (arXiv 2507.01006): Qwen2.5-VL's without windows, with
 * learned positions, followed by a strided convolution and a gated merger. GLM-OCR's has norms of q
 * and k instead of the positions, and GLM-5.3's clamped activations besides. */
#include "model-server/encoder/family.h"

static void blocks(struct config *c, struct encoder_spec *s, const struct block_keys *keys,
                   bool attention_bias)
{
    struct decoder_spec *b = &s->blocks;
    family_blocks(c, s, keys);
    b->norm =
        (struct norm_spec){.kind = NORM_RMS, .eps = (float)config_num_or(c, "rms_norm_eps", 1e-5)};
    b->mlp = MLP_GATED;
    b->qkv = QKV_STACKED;
    b->bias.norm = b->bias.o = b->bias.mlp = false;
    b->bias.qkv = config_bool_or(c, "attention_bias", attention_bias);
    s->frames = config_u32_or(c, "temporal_patch_size", 2, 1, 8);
    s->cell = config_u32_or(c, "spatial_merge_size", 2, 1, 8);
    if (config_u32_or(c, "in_channels", 3, 1, 16) != 3)
        config_fail(c, "`in_channels` must be 3");
    family_grid_rope(c, s, ROPE_GRID);
}

static void merger(struct encoder_spec *s, uint32_t middle)
{
    s->project = (struct encoder_projection){
        .join = s->cell * s->cell,
        .linear = {{W_PROJECT_JOINED, s->width, .bias = true, .channels_first = true},
                   {W_PROJECT_MIDDLE, s->width},
                   {W_PROJECT_IN, 2 * middle, .norm_before = true, .act_before = true,
                    .gated = true, .gate = W_PROJECT_GATE},
                   {W_PROJECT_OUT, s->width}},
        .n_linears = 4,
        .act = ACT_GELU,
        .gate_act = s->blocks.act};
}

/* In the checkpoints the blocks' MLP has the width of the features (out_hidden_size), and the
 * merger that of intermediate_size. */
static void configure(struct config *c, struct encoder_spec *s)
{
    blocks(c, s,
           &(struct block_keys){"hidden_size", "depth", "num_heads", "out_hidden_size", "silu",
                                1536, 24, 12, 4096, 1e-5},
           false);
    s->patch_norm = true;
    family_positions(c, s, POSITIONS_CUBIC, family_square(c, "image_size", 336));
    s->width = config_u32_or(c, "out_hidden_size", 4096, 1, 1u << 20);
    merger(s, config_u32_or(c, "intermediate_size", 13696, 1, 1u << 20));
}

/* The blocks' MLP has the width intermediate_size. The merger follows. */
static void blocks_ocr(struct config *c, struct encoder_spec *s)
{
    struct decoder_spec *b = &s->blocks;
    blocks(c, s,
           &(struct block_keys){"hidden_size", "depth", "num_heads", "intermediate_size", "silu",
                                1024, 24, 16, 4096, 1e-5},
           true);
    b->bias.o = b->bias.mlp = b->bias.qkv;
    b->qk_norm = QK_NORM_HEAD;
    s->width = config_u32_or(c, "out_hidden_size", 1536, 1, 1u << 18);
}

/* The merger's width is three times the features'. */
static void configure_ocr(struct config *c, struct encoder_spec *s)
{
    blocks_ocr(c, s);
    merger(s, 3 * s->width);
}

static void configure_5_next(struct config *c, struct encoder_spec *s)
{
    blocks_ocr(c, s);
    config_only_word(c, "hidden_act", "silu");
    s->blocks.act = config_act_limit(c, "swiglu_limit", ACT_SILU_CLAMPED);
    merger(s, config_u32_or(c, "projection_intermediate_size", 10240, 1, 1u << 20));
}

#define TOWER(x) "model.visual." x "|visual." x
#define NAMES_BLOCKS                                                                               \
    [W_PATCH] = TOWER("patch_embed.proj"), [W_ATTN_NORM] = TOWER("blocks.*.norm1"),                \
    [W_MLP_NORM] = TOWER("blocks.*.norm2"), [W_QKV] = TOWER("blocks.*.attn.qkv"),                  \
    [W_O] = TOWER("blocks.*.attn.proj"), [W_GATE] = TOWER("blocks.*.mlp.gate_proj"),               \
    [W_UP] = TOWER("blocks.*.mlp.up_proj"), [W_DOWN] = TOWER("blocks.*.mlp.down_proj"),            \
    [W_FINAL_NORM] = TOWER("post_layernorm"), [W_PROJECT_JOINED] = TOWER("downsample"),            \
    [W_PROJECT_MIDDLE] = TOWER("merger.proj"),                                                     \
    [W_MIDDLE_NORM] = TOWER("merger.post_projection_norm"),                                        \
    [W_PROJECT_GATE] = TOWER("merger.gate_proj"), [W_PROJECT_IN] = TOWER("merger.up_proj"),        \
    [W_PROJECT_OUT] = TOWER("merger.down_proj")

const struct encoder_family family_glm4v = {
    .types = (const char *const[]){"glm4v", "glm4v_moe", "glm46v", "glmga", NULL},
    .names = {.names = {NAMES_BLOCKS, [W_PATCH_NORM] = TOWER("post_conv_layernorm"),
                        [W_PATCH_POSITIONS] = TOWER("embeddings.position_embedding")}},
    .configure = configure,
};
#define NAMES_NORMED                                                                               \
    NAMES_BLOCKS, [W_Q_NORM] = TOWER("blocks.*.attn.q_norm"),                                      \
                  [W_K_NORM] = TOWER("blocks.*.attn.k_norm")
const struct encoder_family family_glm_ocr = {
    .types = (const char *const[]){"glm_ocr", NULL},
    .names = {.names = {NAMES_NORMED}},
    .configure = configure_ocr,
};
const struct encoder_family family_glm5_next = {
    .types = (const char *const[]){"glm5_next", NULL},
    .names = {.names = {NAMES_NORMED}},
    .configure = configure_5_next,
};
