/* ERNIE 4.5 VL: the blocks of Qwen2-VL with a norm at the end, under the names of the published
 * files. Behind them the patches of a cell become one row, and rows of two frames another one:
 * those of an image are the same. */
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "model-server/encoder/family.h"

enum { PATCHES, A, B, C };
enum {
    SPATIAL_IN = 1,
    SPATIAL_OUT,
    SPATIAL_NORM,
    TEMPORAL_IN,
    TEMPORAL_OUT,
    TEMPORAL_NORM,
    LAST,
    AFTER_NORM
};
#define RESAMPLER "model.resampler_model."
static const char *const names[] = {[0] = "",
                                    [SPATIAL_IN] = RESAMPLER "spatial_linear.0",
                                    [SPATIAL_OUT] = RESAMPLER "spatial_linear.2",
                                    [SPATIAL_NORM] = RESAMPLER "spatial_linear.3",
                                    [TEMPORAL_IN] = RESAMPLER "temporal_linear.0",
                                    [TEMPORAL_OUT] = RESAMPLER "temporal_linear.2",
                                    [TEMPORAL_NORM] = RESAMPLER "temporal_linear.3",
                                    [LAST] = RESAMPLER "mlp",
                                    [AFTER_NORM] = RESAMPLER "after_norm",
                                    [AFTER_NORM + 1] = NULL};

/* Two matrices with an activation between them, and a norm, from `from` over C to `to`; the first
 * one reads squares of `side` places. */
static void mlp(struct conv_spec *s, uint8_t from, uint8_t to, uint32_t side, uint32_t width,
                uint8_t name, float eps)
{
    struct conv_step c = conv_linear(from, C, width, name);
    c.size = c.stride = (uint8_t)side;
    c.same = c.places_first = side > 1;
    c.act = ACT_GELU;
    conv_add(s, c);
    c = conv_linear(C, to, width, name + 1);
    c.norm = name + 2;
    c.layer_norm = true;
    c.eps = eps;
    conv_add(s, c);
}

enum { RESERVED = 64 }; /* patches a side for which memory is reserved */

static void configure(struct config *c, struct encoder_spec *s)
{
    const uint32_t hidden = config_u32_or(c, "hidden_size", 1280, 1, 1u << 14);
    const uint32_t merge = config_u32_or(c, "spatial_merge_size", 2, 1, 8);
    const uint32_t joined = hidden * merge * merge;
    const float eps = (float)config_num_or(c, "rms_norm_eps", 1e-6);
    if (config_u32_or(c, "temporal_merge_size", 2, 1, 8) != 2)
        config_fail(c, "`temporal_merge_size` must be 2");
    s->patch = s->cell = s->frames = s->project.join = 1;
    s->of_features = true;
    s->width = s->blocks.hidden = family_text_width(c);
    s->conv.names = names;
    s->conv.norm = (struct norm_spec){
        .kind = NORM_RMS,
        .eps = (float)json_num(model_file_text_config(c->file), "rms_norm_eps", 1e-5)};
    s->conv.channels = hidden;
    s->conv.side = RESERVED / merge * merge;
    mlp(&s->conv, PATCHES, A, merge, joined, SPATIAL_IN, eps);
    conv_add(&s->conv,
             (struct conv_step){.kind = CONV_JOIN, .from = A, .with = A, .to = B, .act = ACT_N});
    mlp(&s->conv, B, A, 1, joined, TEMPORAL_IN, eps);
    struct conv_step last = conv_linear(A, PATCHES, s->width, LAST);
    last.norm = AFTER_NORM;
    conv_add(&s->conv, last);
}

static void configure_blocks(struct config *c, struct encoder_spec *s)
{
    struct decoder_spec *b = &s->blocks;
    const double ratio = config_num_or(c, "mlp_ratio", 4);
    family_blocks(c, s,
                  &(struct block_keys){"hidden_size", "depth", "num_heads", "intermediate_size",
                                       "quick_gelu", 1280, 32, 16, 5120, 1e-6, 14});
    if (!json_get(c->root, "intermediate_size"))
        b->ffn = ratio > 0 && ratio <= 64 ? (uint32_t)(b->hidden * ratio) : 0;
    if (!b->ffn)
        config_fail(c, "`mlp_ratio` is out of bounds");
    b->norm.eps = (float)config_num_or(c, "rms_norm_eps", 1e-6);
    b->qkv = QKV_STACKED;
    s->patch_bias = false;
    family_grid_rope(c, s, ROPE_GRID);
    s->width = b->hidden;
}

#define TOWER(x) "vision_model." x "|model.vision_model." x
static const struct encoder_family blocks = {
    .names = {.names = {[W_PATCH] = TOWER("patch_embed.proj"),
                        [W_ATTN_NORM] = TOWER("blocks.*.norm1"),
                        [W_MLP_NORM] = TOWER("blocks.*.norm2"),
                        [W_QKV] = TOWER("blocks.*.attn.qkv"),
                        [W_O] = TOWER("blocks.*.attn.proj"),
                        [W_UP] = TOWER("blocks.*.mlp.fc1"),
                        [W_DOWN] = TOWER("blocks.*.mlp.fc2"),
                        [W_FINAL_NORM] = TOWER("ln")}},
    .configure = configure_blocks,
};
const struct encoder_family family_ernie4_5_vl = {
    .types = (const char *const[]){"ernie4_5_vl_moe", "ernie4_5_moe_vl", NULL},
    .configure = configure,
    .before = &blocks,
};
