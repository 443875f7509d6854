/* CLIP (arXiv 2103.00020) and MetaCLIP 2 (2507.22062), images: the class token behind the last
 * norm, times a matrix, is the vector of an image. */
#include "model-server/encoder/family.h"

static void configure(struct config *c, struct encoder_spec *s)
{
    enum { WIDTH = 512, IMAGE = 224, MOST_WIDTH = 1 << 16 };
    const double width = json_num(c->file, "projection_dim", WIDTH);
    family_blocks(c, s,
                  &(struct block_keys){BLOCK_KEYS, "quick_gelu", 768, 12, 12, 3072, 1e-5, 32});
    s->class_token = s->class_alone = s->vectors = true;
    s->blocks.embed_norm = true;
    s->patch_bias = false;
    s->positions = POSITIONS_TABLE;
    s->side = config_u32_or(c, "image_size", IMAGE, 1, 1u << 14) / s->patch;
    if (!(width >= 1 && width <= MOST_WIDTH))
        config_fail(c, "`projection_dim` must be from 1 to %d", MOST_WIDTH);
    else
        s->width = (uint32_t)width;
    s->project.join = s->project.n_linears = 1;
    s->project.linear[0] = (struct encoder_linear){.role = W_PROJECT_IN, .rows = s->width};
}

#define TOWER "vision_model."
const struct encoder_family family_clip = {
    .types = (const char *const[]){"clip", "metaclip_2", NULL},
    .names = {.names = {NAMES_SIGLIP(TOWER, TOWER), [W_EMBED_NORM] = TOWER "pre_layrnorm",
                        [W_CLASS_TOKEN] = TOWER "embeddings.class_embedding",
                        [W_PROJECT_IN] = "visual_projection"}},
    .configure = configure,
};
