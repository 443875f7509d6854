/* The towers of HunyuanOCR and HunyuanVL (Tencent, arXiv 2511.19575) and of Hunyuan V4: SigLIP's
 * blocks for images of any shape. Cells of patches become features by convolutions; a learned
 * feature ends each row. In the first two others begin and end an image, and all pass a norm. */
#include "common/json/json.h"
#include "model-server/encoder/family.h"
#include <string.h>

static enum encoder_positions positions(struct config *c)
{
    const char *word = config_str_or(c, "interpolate_mode", "bilinear");
    if (strcmp(word, "bicubic") == 0)
        return POSITIONS_CUBIC;
    if (strcmp(word, "bilinear") != 0)
        config_fail(c, "`interpolate_mode` %.40s is not supported", word);
    return POSITIONS_LINEAR;
}

static float tower(struct config *c, struct encoder_spec *s, const struct block_keys *keys)
{
    family_blocks(c, s, keys);
    const float eps = (float)config_num_or(c, "rms_norm_eps", s->blocks.norm.eps);
    s->blocks.norm.eps = eps;
    s->blocks.no_final_norm = true;
    s->cell = config_u32_or(c, "spatial_merge_size", 2, 1, 8);
    s->frames = config_u32_or(c, "temporal_patch_size", 1, 1, 1);
    s->class_unused = true;
    family_positions(c, s, positions(c), family_square(c, "max_image_size", 2048));
    s->tiles_joined = s->whole_joined = true;
    return eps;
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const float eps = tower(
        c, s, &(struct block_keys){BLOCK_KEYS, "gelu", 1152, 27, 16, 4304, 1e-5, .patch_or = 16});
    const uint32_t hidden = s->blocks.hidden;
    s->image_begin = s->image_end = s->ends_projected = true;
    s->project = (struct encoder_projection){
        .norm = true,
        .norm_spec = {.kind = NORM_RMS, .eps = eps},
        .norm_role = W_PROJECT_NORM,
        .join = s->cell * s->cell,
        .linear = {{W_PROJECT_JOINED, 2 * hidden, true, .channels_first = true},
                   {W_PROJECT_IN, 4 * hidden, true, .act_before = true, .convolution = true},
                   {W_PROJECT_OUT, s->width, true}},
        .n_linears = 3,
        .act = s->blocks.act,
        .after_eps = eps,
        .after_role = W_AFTER_NORM};
}

static void configure_v4(struct config *c, struct encoder_spec *s)
{
    const float eps = tower(
        c, s, &(struct block_keys){BLOCK_KEYS, "gelu", 1536, 40, 16, 6144, 1e-5, .patch_or = 16});
    s->position_part = 0.1F;
    s->project = (struct encoder_projection){
        .norm = true,
        .norm_spec = {.kind = NORM_RMS, .eps = eps},
        .norm_role = W_PROJECT_NORM,
        .join = s->cell * s->cell,
        .linear = {{W_PROJECT_JOINED, s->blocks.hidden * s->cell * s->cell, true,
                    .channels_first = true},
                   {W_PROJECT_OUT, s->width, true, .act_before = true, .convolution = true}},
        .n_linears = 2,
        .act = s->blocks.act};
}

/* Files of its authors have the first of each two names. */
#define TOWER(p, q)  "vit." p "|model.vision_tower." q
#define SAME(p)      TOWER(p, p)
#define MERGER(p, q) TOWER("perceive." p, "patch_merger." q)
#define NAMES_HUNYUAN                                                                              \
    [W_PATCH] = SAME("embeddings.patch_embedding"),                                                \
    [W_PATCH_POSITIONS] = SAME("embeddings.position_embedding"),                                   \
    [W_ATTN_NORM] = TOWER("layers.*.input_layernorm", "layers.*.layer_norm1"),                     \
    [W_MLP_NORM] = TOWER("layers.*.post_attention_layernorm", "layers.*.layer_norm2"),             \
    [W_Q] = SAME("layers.*.self_attn.q_proj"), [W_K] = SAME("layers.*.self_attn.k_proj"),          \
    [W_V] = SAME("layers.*.self_attn.v_proj"), [W_O] = SAME("layers.*.self_attn.o_proj"),          \
    [W_UP] = TOWER("layers.*.mlp.dense_h_to_4h", "layers.*.mlp.fc1"),                              \
    [W_DOWN] = TOWER("layers.*.mlp.dense_4h_to_h", "layers.*.mlp.fc2"),                            \
    [W_PROJECT_JOINED] = MERGER("proj.0", "proj_conv"),                                            \
    [W_ROW_END] = MERGER("image_newline", "image_newline")

const struct encoder_family family_hunyuan_vl = {
    .types = (const char *const[]){"hunyuan_vl", NULL},
    .names =
        {.names =
             {NAMES_HUNYUAN, [W_PROJECT_NORM] = MERGER("before_rms", "before_rms"),
              [W_PROJECT_IN] = MERGER("proj.2", "proj_out"), [W_PROJECT_OUT] = MERGER("mlp", "mlp"),
              [W_AFTER_NORM] = MERGER("after_rms", "after_rms"),
              [W_IMAGE_BEGIN] = MERGER("image_begin", "image_begin"),
              [W_IMAGE_END] = MERGER("image_end", "image_end")}},
    .configure = configure,
};
const struct encoder_family family_hy_v4 = {
    .types = (const char *const[]){"hy_v4_vl", NULL},
    .names = {.names = {NAMES_HUNYUAN,
                        [W_PROJECT_NORM] = "vit.perceive.norm|" MERGER("before_rms", "before_rms"),
                        [W_PROJECT_OUT] = MERGER("proj.2", "proj_out")}},
    .configure = configure_v4,
};
