/* The tower of GOT-OCR 2 (arXiv 2409.01704): that of SAM (2304.02643), whose layers attend within
 * windows or everywhere, with relative positions by row and by column (MViTv2, 2112.01526). Then
 * come convolutions that leave a sixteenth of the places. */
#include "model-server/encoder/family.h"

/* Grids: the stream, and what a layer computes in between. */
enum { STREAM, A, B, C };

/* Numbers of tensor names. */
enum {
    PATCHES = 1,
    PLACES,
    ATTEND_NORM,
    QKV,
    ROWS,
    COLUMNS,
    ATTEND_OUT,
    MLP_NORM,
    MLP_IN,
    MLP_OUT,
    NECK_IN,
    NECK_IN_NORM,
    NECK_OUT,
    NECK_OUT_NORM,
    HALVE,
    HALVE_AGAIN,
    NAMES
};

#define TOWER    "model.vision_tower."
#define LAYER(x) TOWER "layers.*." x
static const char *const names[NAMES + 1] = {
    [0] = "",
    [PATCHES] = TOWER "patch_embed.projection",
    [PLACES] = TOWER "pos_embed",
    [ATTEND_NORM] = LAYER("layer_norm1"),
    [QKV] = LAYER("attn.qkv"),
    [ROWS] = LAYER("attn.rel_pos_h"),
    [COLUMNS] = LAYER("attn.rel_pos_w"),
    [ATTEND_OUT] = LAYER("attn.proj"),
    [MLP_NORM] = LAYER("layer_norm2"),
    [MLP_IN] = LAYER("mlp.lin1"),
    [MLP_OUT] = LAYER("mlp.lin2"),
    [NECK_IN] = TOWER "neck.conv1",
    [NECK_IN_NORM] = TOWER "neck.layer_norm1",
    [NECK_OUT] = TOWER "neck.conv2",
    [NECK_OUT_NORM] = TOWER "neck.layer_norm2",
    [HALVE] = "model.multi_modal_projector.conv_upsampler1",
    [HALVE_AGAIN] = "model.multi_modal_projector.conv_upsampler2"};

static struct conv_step product(uint8_t from, uint8_t to, uint32_t out, uint8_t weight)
{
    struct conv_step c = conv_product(from, to, out, weight);
    c.bias = true;
    return c;
}

struct sizes {
    uint32_t hidden, heads, mlp, side, window; /* side: places of the picture */
    bool qkv_bias, relative;
};

/* `window`: places a side; 0: the layer attends everywhere. */
static void attention(struct conv_spec *s, const struct sizes *z, uint16_t layer, uint32_t window)
{
    const uint32_t dim = z->hidden / z->heads, side = window ? window : z->side;
    const uint32_t wide = z->relative ? (dim + 2 * side + 7) / 8 * 8 : dim;
    struct conv_step c = conv_norm(STREAM, A, ATTEND_NORM);
    c.at[0] = layer;
    conv_add(s, c);
    if (window)
        conv_add(
            s, (struct conv_step){
                   .kind = CONV_SPLIT, .from = A, .to = B, .size = (uint8_t)window, .act = ACT_N});
    c = product(window ? B : A, C, 3 * z->hidden, QKV);
    c.bias = z->qkv_bias;
    c.at[0] = layer;
    conv_add(s, c);
    c = (struct conv_step){.kind = CONV_RELATE,
                           .from = C,
                           .to = A,
                           .size = (uint8_t)side,
                           .act = ACT_N,
                           .weight = ROWS,
                           .norm = COLUMNS,
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
    c = product(window ? A : B, STREAM, z->hidden, ATTEND_OUT);
    c.at[0] = layer;
    c.add = true;
    conv_add(s, c);
}

static void mlp(struct conv_spec *s, const struct sizes *z, uint16_t layer, enum act act)
{
    struct conv_step c = conv_norm(STREAM, A, MLP_NORM);
    c.at[0] = layer;
    conv_add(s, c);
    c = product(A, B, z->mlp, MLP_IN);
    c.at[0] = layer;
    c.act = act;
    conv_add(s, c);
    c = product(B, STREAM, z->hidden, MLP_OUT);
    c.at[0] = layer;
    c.add = true;
    conv_add(s, c);
}

/* A convolution of 3 x 3, without a bias. */
static struct conv_step square(uint8_t from, uint8_t to, uint32_t out, uint8_t stride,
                               uint8_t weight)
{
    struct conv_step c = product(from, to, out, weight);
    c.size = 3, c.stride = stride;
    c.bias = false;
    return c;
}

static void neck(struct conv_spec *s, uint32_t channels, uint32_t width)
{
    struct conv_step c = product(STREAM, A, channels, NECK_IN);
    c.bias = false;
    c.norm = NECK_IN_NORM;
    conv_add(s, c);
    c = square(A, B, channels, 1, NECK_OUT);
    c.norm = NECK_OUT_NORM;
    conv_add(s, c);
    conv_add(s, square(B, A, 2 * channels, 2, HALVE));
    conv_add(s, square(A, STREAM, width, 2, HALVE_AGAIN));
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

/* At most 255 places a side: of a step. */
static bool read_sizes(struct config *c, struct sizes *z, uint32_t *patch)
{
    *patch = family_square(c, "patch_size", 16);
    const uint32_t image = family_square(c, "image_size", 1024);
    z->hidden = config_u32_or(c, "hidden_size", 768, 1, 1u << 16);
    z->heads = config_u32_or(c, "num_attention_heads", 12, 1, 1u << 10);
    z->mlp = config_u32_or(c, "mlp_dim", 3072, 1, 1u << 20);
    z->window = config_u32_or(c, "window_size", 14, 1, 64);
    z->qkv_bias = config_bool_or(c, "qkv_bias", true);
    z->relative = config_bool_or(c, "use_rel_pos", true);
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

static void configure(struct config *c, struct encoder_spec *s)
{
    struct sizes z = {0};
    uint32_t patch = 1;
    const uint32_t layers = config_u32_or(c, "num_hidden_layers", 12, 1, 32);
    const uint32_t channels = config_u32_or(c, "output_channels", 256, 1, 1u << 14);
    const enum act act = config_act(c, "hidden_act", "gelu");
    s->patch = s->cell = s->frames = 1;
    s->width = s->blocks.hidden = family_text_width(c);
    if (!read_sizes(c, &z, &patch))
        return;
    s->conv.names = names;
    s->conv.norm = (struct norm_spec){.kind = NORM_LAYER, .eps = 1e-6F};
    s->conv.side = z.side * patch;
    struct conv_step first = product(STREAM, A, z.hidden, PATCHES);
    first.size = first.stride = (uint8_t)patch;
    first.same = true;
    conv_add(&s->conv, first);
    conv_add(&s->conv, (struct conv_step){.kind = CONV_PLACES,
                                          .from = A,
                                          .to = STREAM,
                                          .size = (uint8_t)z.side,
                                          .act = ACT_N,
                                          .weight = PLACES});
    for (uint16_t i = 0; i < layers; i++) {
        attention(&s->conv, &z, i, is_global(c, i) ? 0 : z.window);
        mlp(&s->conv, &z, i, act);
    }
    neck(&s->conv, channels, s->width);
    s->project = (struct encoder_projection){
        .join = 1, .linear = {{W_PROJECT_OUT, s->width, true}}, .n_linears = 1};
}

const struct encoder_family family_got_ocr2 = {
    .types = (const char *const[]){"got_ocr2", "pp_chart2table", NULL},
    .names = {.names = {[W_PROJECT_OUT] = "model.multi_modal_projector.multimodal_projector"},
              .prefix = "model."},
    .configure = configure,
};
