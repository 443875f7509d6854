/* Towers of SAM (arXiv 2304.02643), whose layers attend within windows or everywhere, with relative
 * positions by row and by column (MViTv2, 2112.01526). Then come convolutions that leave a
 * sixteenth of the places. GOT-OCR 2 (2409.01704) projects these. */
#include "model-server/encoder/family/sam.h"

/* Grids: the stream, and what a layer computes in between. */
enum { STREAM, A, B, C };

#define GOT "model.multi_modal_projector."
static const char *const names_got[SAM_N_NAMES + 1] = {
    SAM_NAMES("model.vision_tower.", GOT "conv_upsampler1", GOT "conv_upsampler2")};

/* `window`: places a side; 0: the layer attends everywhere. */
static void attention(struct conv_spec *s, const struct sam_sizes *z, uint16_t layer,
                      uint32_t window)
{
    const uint32_t dim = z->hidden / z->heads, side = window ? window : z->side;
    const uint32_t wide = z->relative ? (dim + 2 * side + 7) / 8 * 8 : dim;
    struct conv_step c = conv_norm(STREAM, A, SAM_ATTEND_NORM);
    c.at[0] = layer;
    conv_add(s, c);
    if (window)
        conv_add(
            s, (struct conv_step){
                   .kind = CONV_SPLIT, .from = A, .to = B, .size = (uint8_t)window, .act = ACT_N});
    c = conv_linear(window ? B : A, C, 3 * z->hidden, SAM_QKV);
    c.bias = z->qkv_bias;
    c.at[0] = layer;
    conv_add(s, c);
    c = (struct conv_step){.kind = CONV_RELATE,
                           .from = C,
                           .to = A,
                           .size = (uint8_t)side,
                           .fitted = z->fitted && !window,
                           .act = ACT_N,
                           .weight = SAM_ROWS,
                           .norm = SAM_COLUMNS,
                           .at = {layer},
                           .heads = z->heads,
                           .kv_heads = dim,
                           .head_dim = wide};
    conv_add(s, c);
    conv_add(s, (struct conv_step){.kind = CONV_ATTEND,
                                   .from = A,
                                   .with = A,
                                   .to = B,
                                   .size = (uint8_t)window,
                                   .act = ACT_N,
                                   .heads = z->heads,
                                   .kv_heads = z->heads,
                                   .head_dim = wide,
                                   .v_dim = dim});
    if (window)
        conv_add(s, (struct conv_step){.kind = CONV_MERGE,
                                       .from = B,
                                       .with = STREAM,
                                       .to = A,
                                       .size = (uint8_t)window,
                                       .act = ACT_N});
    c = conv_linear(window ? A : B, STREAM, z->hidden, SAM_ATTEND_OUT);
    c.at[0] = layer;
    c.add = true;
    conv_add(s, c);
}

static void mlp(struct conv_spec *s, const struct sam_sizes *z, uint16_t layer, enum act act)
{
    struct conv_step c = conv_norm(STREAM, A, SAM_MLP_NORM);
    c.at[0] = layer;
    conv_add(s, c);
    c = conv_linear(A, B, z->mlp, SAM_MLP_IN);
    c.at[0] = layer;
    c.act = act;
    conv_add(s, c);
    c = conv_linear(B, STREAM, z->hidden, SAM_MLP_OUT);
    c.at[0] = layer;
    c.add = true;
    conv_add(s, c);
}

/* A convolution of 3 x 3, without a bias. */
static struct conv_step square(uint8_t from, uint8_t to, uint32_t out, uint8_t stride,
                               uint8_t weight)
{
    struct conv_step c = conv_linear(from, to, out, weight);
    c.size = 3, c.stride = stride;
    c.bias = false;
    return c;
}

static void neck(struct conv_spec *s, const struct sam_sizes *z)
{
    struct conv_step c = conv_linear(STREAM, A, z->neck, SAM_NECK_IN);
    c.bias = false;
    c.norm = SAM_NECK_IN_NORM;
    conv_add(s, c);
    c = square(A, B, z->neck, 1, SAM_NECK_OUT);
    c.norm = SAM_NECK_OUT_NORM;
    conv_add(s, c);
    conv_add(s, square(B, A, z->halved, 2, SAM_HALVE));
    conv_add(s, square(A, STREAM, z->out, 2, SAM_HALVE_AGAIN));
}

static bool is_global(struct config *c, uint32_t layer)
{
    static const uint32_t usual[] = {2, 5, 8, 11};
    const cJSON *list = json_get(c->root, "global_attn_indexes"), *one;
    cJSON_ArrayForEach(one, list) if (one->valuedouble == layer) return true;
    for (size_t i = 0; !list && i < sizeof(usual) / sizeof(usual[0]); i++)
        if (usual[i] == layer)
            return true;
    return false;
}

bool sam_read(struct config *c, struct sam_sizes *z, uint32_t image, uint32_t *patch)
{
    *patch = family_square(c, "patch_size", 16);
    image = family_square(c, "image_size", image);
    z->hidden = config_u32_or(c, config_either(c, "hidden_size", "width"), 768, 1, 1u << 16);
    z->heads = config_u32_or(c, config_either(c, "num_attention_heads", "heads"), 12, 1, 1u << 10);
    z->mlp = config_u32_or(c, "mlp_dim", 4 * z->hidden, 1, 1u << 20);
    z->window = config_u32_or(c, "window_size", 14, 1, 64);
    z->qkv_bias = config_bool_or(c, "qkv_bias", true);
    z->relative = config_bool_or(c, "use_rel_pos", true);
    z->neck = config_u32_or(c, "output_channels", 256, 1, 1u << 14);
    z->side = image / *patch;
    if (!z->relative || !config_bool_or(c, "use_abs_pos", true))
        config_fail(c, "`use_rel_pos` and `use_abs_pos` must be true");
    if (config_num_or(c, "layer_norm_eps", 1e-6) != 1e-6)
        config_fail(c, "`layer_norm_eps` must be 1e-6, as in the convolutions");
    if (z->hidden % z->heads || image % *patch || *patch > CONV_MAX_SIZE || z->side < 4 ||
        z->side > 128)
        config_fail(c, "`hidden_size`, `num_attention_heads`, `image_size` and `patch_size` "
                       "disagree");
    return !c->failed;
}

void sam_tower(struct config *c, struct encoder_spec *s, const struct sam_sizes *z, uint32_t patch)
{
    const uint32_t layers =
        config_u32_or(c, config_either(c, "num_hidden_layers", "layers"), 12, 1, 32);
    const enum act act = config_act(c, "hidden_act", "gelu");
    s->patch = s->cell = s->frames = 1;
    s->width = s->blocks.hidden = z->out;
    s->conv.norm = (struct norm_spec){.kind = NORM_LAYER, .eps = 1e-6F};
    s->conv.side = z->side * patch;
    struct conv_step first = conv_linear(STREAM, A, z->hidden, SAM_PATCHES);
    first.size = first.stride = (uint8_t)patch;
    first.same = true;
    conv_add(&s->conv, first);
    conv_add(&s->conv, (struct conv_step){.kind = CONV_PLACES,
                                          .from = A,
                                          .to = STREAM,
                                          .size = (uint8_t)z->side,
                                          .fitted = z->fitted,
                                          .act = ACT_N,
                                          .weight = SAM_PLACES});
    for (uint16_t i = 0; i < layers; i++) {
        attention(&s->conv, z, i, is_global(c, i) ? 0 : z->window);
        mlp(&s->conv, z, i, act);
    }
    neck(&s->conv, z);
    s->project = (struct encoder_projection){.join = 1};
}

static void configure_got(struct config *c, struct encoder_spec *s)
{
    struct sam_sizes z = {.out = family_text_width(c)};
    uint32_t patch = 1;
    s->patch = s->cell = s->frames = s->project.join = 1;
    s->width = z.out;
    if (!sam_read(c, &z, 1024, &patch))
        return;
    z.halved = 2 * z.neck;
    s->conv.names = names_got;
    sam_tower(c, s, &z, patch);
    s->project = (struct encoder_projection){
        .join = 1, .linear = {{W_PROJECT_OUT, s->width, true}}, .n_linears = 1};
}

const struct encoder_family family_got_ocr2 = {
    .types = (const char *const[]){"got_ocr2", "pp_chart2table", NULL},
    .names = {.names = {[W_PROJECT_OUT] = "model.multi_modal_projector.multimodal_projector"},
              .prefix = "model."},
    .configure = configure_got,
};
