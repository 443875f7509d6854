/* MiniCPM-V 4.6 and 4.7: SigLIP for pictures of any shape. Behind one of its layers the patches of
 * a cell attend to each other and become one; the layers after it work on these. */
#include "common/json/json.h"
#include "model-server/encoder/family.h"
#include <string.h>

enum { CELL = 2, JOINED = CELL * CELL };

static void only_cells(struct config *c, const cJSON *in, const char *key)
{
    const cJSON *v = json_get(in, key), *x;
    cJSON_ArrayForEach(x, v) if (x->valuedouble != CELL)
        config_fail(c, "`%s` must be %d x %d", key, CELL, CELL);
}

static void siglip(struct config *c, struct encoder_spec *s, const char *mode)
{
    family_siglip_blocks(c, s, 768, 12, 12, 3072);
    only_cells(c, c->file, "merge_kernel_size");
    family_only_word(c, "downsample_mode", mode);
    if (json_num(c->file, "merger_times", 1) != 1)
        config_fail(c, "`merger_times` must be 1");
    s->cell = CELL;
}

/* SigLIP, and how many of its layers precede the first merge. */
static uint32_t siglip_of_two(struct config *c, struct encoder_spec *s)
{
    const double at = json_num(c->file, "insert_layer_id", 6);
    siglip(c, s, "16x");
    only_cells(c, c->root, "window_kernel_size");
    if (at >= 0 && at + 1 < s->blocks.n_layers && at == (uint32_t)at)
        return (uint32_t)at + 1;
    config_fail(c, "`insert_layer_id` must be a layer of the tower, not its last one");
    return 1;
}

/* A norm of the rows of a cell side by side, and two matrices. */
static void merge(struct encoder_spec *s, uint32_t middle, enum act act, float eps)
{
    s->project = (struct encoder_projection){
        .norm = true,
        .norm_joined = true,
        .norm_spec = {NORM_LAYER, eps, 0},
        .norm_bias = true,
        .norm_role = W_PROJECT_NORM,
        .join = JOINED,
        .linear = {{W_PROJECT_IN, middle, true}, {W_PROJECT_OUT, s->width, true, true}},
        .n_linears = 2,
        .act = act};
}

static void configure_before(struct config *c, struct encoder_spec *s)
{
    struct decoder_spec *b = &s->blocks;
    const uint32_t n = siglip_of_two(c, s);
    family_positions(c, s, POSITIONS_DIVIDED, family_square(c, "image_size", 224));
    s->width = b->hidden;
    s->windows = 1; /* in the layer without a feed-forward */
    b->layers[n].no_ffn = true;
    b->layers[n].mutual = MUTUAL_ALONE;
    b->second_stack = n;
    b->n_layers = n + 1;
    b->no_final_norm = true;
    merge(s, JOINED * b->ffn, ACT_GELU_TANH, b->norm.eps);
    s->project.plus_mean = true;
}

static void configure(struct config *c, struct encoder_spec *s)
{
    struct decoder_spec *b = &s->blocks;
    const uint32_t n = siglip_of_two(c, s);
    b->named_from = n;
    b->n_layers -= n < b->n_layers ? n : 0;
    s->of_features = true;
    s->patch_bias = false;
    s->patch = 1;
    merge(s, JOINED * b->hidden, ACT_GELU, 1e-6F);
}

/* MiniCPM-OCR: without the merge between layers. */
static void configure_ocr(struct config *c, struct encoder_spec *s)
{
    siglip(c, s, "4x");
    family_positions(c, s, POSITIONS_DIVIDED, family_square(c, "image_size", 224));
    merge(s, JOINED * s->blocks.hidden, ACT_GELU, 1e-6F);
}

#define TOWER  "model.vision_tower."
#define MERGER TOWER "vit_merger."
static const struct arch merger = {.names = {[W_ATTN_NORM] = MERGER "layer_norm1",
                                             [W_Q] = MERGER "self_attn.q_proj",
                                             [W_K] = MERGER "self_attn.k_proj",
                                             [W_V] = MERGER "self_attn.v_proj",
                                             [W_O] = MERGER "self_attn.out_proj"}};
static const struct encoder_family before = {
    .names =
        {.names = {NAMES_SIGLIP(TOWER, TOWER "vision_model."), [W_PROJECT_NORM] = MERGER "pre_norm",
                   [W_PROJECT_IN] = MERGER "linear_1", [W_PROJECT_OUT] = MERGER "linear_2"},
         .prefix = "model.",
         .second = &merger},
    .configure = configure_before,
};

#define NAMES_MERGED                                                                               \
    NAMES_SIGLIP(TOWER, TOWER "vision_model."), [W_PROJECT_NORM] = "model.merger.mlp.0.pre_norm",  \
                                                [W_PROJECT_IN] = "model.merger.mlp.0.linear_1",    \
                                                [W_PROJECT_OUT] = "model.merger.mlp.0.linear_2"
const struct encoder_family family_minicpmv = {
    .types = (const char *const[]){"minicpmv4_6", "minicpmv4_7", NULL},
    .names = {.names = {NAMES_MERGED}, .prefix = "model."},
    .configure = configure,
    .before = &before,
};
const struct encoder_family family_minicpm_ocr = {
    .types = (const char *const[]){"minicpm_ocr", NULL},
    .names = {.names = {NAMES_MERGED}, .prefix = "model."},
    .configure = configure_ocr,
};
