/* Towers of SigLIP (arXiv 2303.15343): Gemma 3 (2503.19786), PaliGemma
 * (2407.07726), Idefics 3 (2408.12637) and SmolVLM. */
#include "model-server/encoder/family.h"

static void siglip(struct config *c, struct encoder_spec *s, uint32_t image_size)
{
    family_blocks(c, s,
                  &(struct block_keys){"hidden_size", "num_hidden_layers", "num_attention_heads",
                                       "intermediate_size", "gelu_pytorch_tanh", 1152, 12, 16, 3072,
                                       1e-6});
    s->positions = POSITIONS_TABLE;
    s->side = config_u32_or(c, "image_size", image_size, 1, 1u << 14) / s->patch;
    if (!s->side)
        config_fail(c, "`image_size` must hold a patch");
}

static void configure_gemma3(struct config *c, struct encoder_spec *s)
{
    siglip(c, s, 896);
    const double tokens = json_num(c->file, "mm_tokens_per_image", 256);
    uint32_t rows = 0;
    while ((rows + 1) * (rows + 1) <= tokens && rows < s->side)
        rows++;
    if (rows == 0 || rows * rows != tokens || s->side % rows) {
        config_fail(c, "`mm_tokens_per_image` does not divide %u x %u patches", s->side, s->side);
        return;
    }
    s->cell = s->side / rows;
    s->pool = true;
    s->project =
        (struct encoder_projection){.norm = true,
                                    .norm_spec = {NORM_RMS, s->blocks.norm.eps, 1},
                                    .norm_role = W_PROJECT_NORM,
                                    .join = 1,
                                    .linear = {{W_PROJECT_OUT, s->width, .plain_name = true}},
                                    .n_linears = 1};
}

static void configure_idefics3(struct config *c, struct encoder_spec *s)
{
    siglip(c, s, 364);
    const double factor = json_num(c->file, "scale_factor", 2);
    if (!(factor >= 1 && factor <= 16) || s->side % (uint32_t)factor) {
        config_fail(c, "`scale_factor` does not divide %u patches", s->side);
        return;
    }
    s->cell = (uint32_t)factor;
    s->project = (struct encoder_projection){
        .join = s->cell * s->cell, .linear = {{W_PROJECT_OUT, s->width}}, .n_linears = 1};
}

static void configure_paligemma(struct config *c, struct encoder_spec *s)
{
    siglip(c, s, 224);
    if (config_u32_or(c, "projection_dim", s->width, 1, 1u << 20) != s->width)
        config_fail(c, "`projection_dim` must be the text model's hidden_size");
    s->project = (struct encoder_projection){
        .join = 1, .linear = {{W_PROJECT_OUT, s->width, .bias = true}}, .n_linears = 1};
}

const struct encoder_family family_gemma3 = {
    .types = (const char *const[]){"gemma3", NULL},
    .names = {.names = {NAMES_SIGLIP("model.vision_tower.vision_model.", "model.vision_tower."),
                        [W_PROJECT_NORM] = "model.multi_modal_projector.mm_soft_emb_norm",
                        [W_PROJECT_OUT] = "model.multi_modal_projector.mm_input_projection_weight"},
              .prefix = "model."},
    .configure = configure_gemma3,
};
const struct encoder_family family_idefics3 = {
    .types = (const char *const[]){"idefics3", "smolvlm", NULL},
    .names = {.names = {NAMES_SIGLIP("model.vision_model.", "vision_model."),
                        [W_PROJECT_OUT] = "model.connector.modality_projection.proj"},
              .prefix = "model."},
    .configure = configure_idefics3,
};
const struct encoder_family family_paligemma = {
    .types = (const char *const[]){"paligemma", NULL},
    .names = {.names = {NAMES_SIGLIP("model.vision_tower.vision_model.", "model.vision_tower."),
                        [W_PROJECT_OUT] = "model.multi_modal_projector.linear"},
              .prefix = "model."},
    .configure = configure_paligemma,
};
