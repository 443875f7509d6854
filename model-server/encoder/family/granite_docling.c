/* The tower of Granite Docling 500M and 2B (IBM): SigLIP's blocks for square tiles. Cells of
 * patches become features by two matrices with norms and positions between them, and results of
 * some layers are added to the first layers of the text model. What chooses pages of four times as
 * many features (the fine path, and the router for it) is not used. */
#include "model-server/encoder/family.h"

static void project(struct encoder_spec *s)
{
    const uint32_t join = s->cell * s->cell;
    const struct norm_spec norm = {NORM_LAYER, 1e-5F, 0};
    s->project = (struct encoder_projection){
        .norm = true,
        .norm_spec = norm,
        .norm_bias = true,
        .norm_role = W_PROJECT_NORM,
        .join = join,
        .linear = {{W_PROJECT_IN, s->width},
                   {W_PROJECT_OUT, s->width, .act_before = true, .norm_before = true}},
        .n_linears = 2,
        .act = ACT_GELU,
        .sines = s->side / s->cell,
        .after_eps = norm.eps,
        .after_role = W_AFTER_NORM,
        .after_layer = true};
    s->level = (struct encoder_projection){
        .norm = true,
        .norm_joined = true,
        .norm_spec = norm,
        .norm_bias = true,
        .norm_role = W_LEVEL_NORM,
        .join = join,
        .linear = {{W_LEVEL_IN, s->width, true}, {W_LEVEL_OUT, s->width, true, true}},
        .n_linears = 2,
        .act = ACT_GELU};
}

static void configure(struct config *c, struct encoder_spec *s)
{
    family_siglip_blocks(c, s, 768, 12, 12, 3072);
    family_positions(c, s, POSITIONS_TABLE, family_square(c, "image_size", 512));
    s->cell = config_u32_or(c, "scale_factor", 4, 1, 16);
    s->feature_scale = family_feature_scale(c);
    if (s->side % s->cell) {
        config_fail(c, "`scale_factor` does not divide %u patches", s->side);
        s->cell = 1;
    }
    if (config_u32_or(c, "out_hidden_size", 1024, 1, 1u << 20) != s->width || s->width % 4)
        config_fail(c, "`out_hidden_size` must be the text model's width, and a multiple of 4");
    family_levels(c, s);
    if (!json_get(c->root, "deepstack_visual_indexes"))
        config_fail(c, "`deepstack_visual_indexes` is missing");
    project(s);
}

#define CONNECTOR "model.vision_model.connector."
#define LEVEL(x)  CONNECTOR "coarse.deepstack_mergers.*." x
const struct encoder_family family_granite_docling = {
    .types = (const char *const[]){"granite_docling", NULL},
    .names =
        {.names =
             {NAMES_SIGLIP("model.vision_model.", "vision_model."),
              [W_PROJECT_NORM] = CONNECTOR "ln_in", [W_PROJECT_IN] = CONNECTOR "coarse.projection",
              [W_MIDDLE_NORM] = CONNECTOR "ln_mid", [W_PROJECT_OUT] = CONNECTOR "mlp_fc2",
              [W_AFTER_NORM] = CONNECTOR "ln_out", [W_LEVEL_NORM] = LEVEL("layer_norm"),
              [W_LEVEL_IN] = LEVEL("linear_1"), [W_LEVEL_OUT] = LEVEL("linear_2")},
         .prefix = "model."},
    .configure = configure,
};
