/* Towers of SAM (arXiv 2304.02643), whose layers attend within windows or everywhere, with relative
 * positions by row and by column (MViTv2, 2112.01526). Then come convolutions that leave a
 * sixteenth of the places. GOT-OCR 2 (2409.01704) projects these. DeepSeek-OCR 2 reads them with a
 * decoder, where learned queries follow them. */
#include "common/json/json.h"
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

/* The names behind the prefix `p`, and those of the last two convolutions. */
#define NAMES_SAM(p, halve, again)                                                                 \
    [0] = "", [PATCHES] = p "patch_embed.projection", [PLACES] = p "pos_embed",                    \
    [ATTEND_NORM] = p "layers.*.layer_norm1", [QKV] = p "layers.*.attn.qkv",                       \
    [ROWS] = p "layers.*.attn.rel_pos_h", [COLUMNS] = p "layers.*.attn.rel_pos_w",                 \
    [ATTEND_OUT] = p "layers.*.attn.proj", [MLP_NORM] = p "layers.*.layer_norm2",                  \
    [MLP_IN] = p "layers.*.mlp.lin1", [MLP_OUT] = p "layers.*.mlp.lin2",                           \
    [NECK_IN] = p "neck.conv1", [NECK_IN_NORM] = p "neck.layer_norm1",                             \
    [NECK_OUT] = p "neck.conv2", [NECK_OUT_NORM] = p "neck.layer_norm2", [HALVE] = halve,          \
    [HALVE_AGAIN] = again
#define GOT "model.multi_modal_projector."
static const char *const names_got[NAMES + 1] = {
    NAMES_SAM("model.vision_tower.", GOT "conv_upsampler1", GOT "conv_upsampler2")};
#define DEEP "model.vision_tower.sam_encoder."
static const char *const names_deepseek[NAMES + 1] = {
    NAMES_SAM(DEEP, DEEP "proj.conv1", DEEP "proj.conv2")};

static struct conv_step product(uint8_t from, uint8_t to, uint32_t out, uint8_t weight)
{
    struct conv_step c = conv_product(from, to, out, weight);
    c.bias = true;
    return c;
}

struct sizes {
    uint32_t hidden, heads, mlp, side, window; /* side: places of the picture */
    bool qkv_bias, relative;
    bool fitted; /* pictures may be smaller: tables of positions are fitted to them */
    uint32_t neck, halved, out; /* channels of the last convolutions */
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
                           .fitted = z->fitted && !window,
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

static void neck(struct conv_spec *s, const struct sizes *z)
{
    struct conv_step c = product(STREAM, A, z->neck, NECK_IN);
    c.bias = false;
    c.norm = NECK_IN_NORM;
    conv_add(s, c);
    c = square(A, B, z->neck, 1, NECK_OUT);
    c.norm = NECK_OUT_NORM;
    conv_add(s, c);
    conv_add(s, square(B, A, z->halved, 2, HALVE));
    conv_add(s, square(A, STREAM, z->out, 2, HALVE_AGAIN));
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

/* The tower over pictures of z->side patches of `patch` pixels. */
static void sam(struct config *c, struct encoder_spec *s, const struct sizes *z, uint32_t patch)
{
    const uint32_t layers = config_u32_or(c, "num_hidden_layers", 12, 1, 32);
    const enum act act = config_act(c, "hidden_act", "gelu");
    s->patch = s->cell = s->frames = 1;
    s->width = s->blocks.hidden = z->out;
    s->conv.norm = (struct norm_spec){.kind = NORM_LAYER, .eps = 1e-6F};
    s->conv.side = z->side * patch;
    struct conv_step first = product(STREAM, A, z->hidden, PATCHES);
    first.size = first.stride = (uint8_t)patch;
    first.same = true;
    conv_add(&s->conv, first);
    conv_add(&s->conv, (struct conv_step){.kind = CONV_PLACES,
                                          .from = A,
                                          .to = STREAM,
                                          .size = (uint8_t)z->side,
                                          .fitted = z->fitted,
                                          .act = ACT_N,
                                          .weight = PLACES});
    for (uint16_t i = 0; i < layers; i++) {
        attention(&s->conv, z, i, is_global(c, i) ? 0 : z->window);
        mlp(&s->conv, z, i, act);
    }
    neck(&s->conv, z);
    s->project = (struct encoder_projection){.join = 1};
}

static void configure_got(struct config *c, struct encoder_spec *s)
{
    struct sizes z = {.out = family_text_width(c)};
    uint32_t patch = 1;
    s->patch = s->cell = s->frames = s->project.join = 1;
    s->width = z.out;
    if (!read_sizes(c, &z, &patch))
        return;
    z.halved = 2 * z.neck;
    s->conv.names = names_got;
    sam(c, s, &z, patch);
    s->project = (struct encoder_projection){
        .join = 1, .linear = {{W_PROJECT_OUT, s->width, true}}, .n_linears = 1};
}

const struct encoder_family family_got_ocr2 = {
    .types = (const char *const[]){"got_ocr2", "pp_chart2table", NULL},
    .names = {.names = {[W_PROJECT_OUT] = "model.multi_modal_projector.multimodal_projector"},
              .prefix = "model."},
    .configure = configure_got,
};

/* ---------------------------------------------------------------- DeepSeek-OCR 2 */

/* Opens an object of vision_config; returns what was open. */
static cJSON *enter(struct config *c, const char *key)
{
    static const cJSON none = {.type = cJSON_Object};
    cJSON *const tower = c->root;
    const cJSON *in = config_object(c, tower, key);
    c->root = (cJSON *)(uintptr_t)(in ? in : &none);
    return tower;
}

/* Patches of a side of the larger of both pictures that SAM leaves; the smaller one has three
 * quarters of them. `z`, `patch`: of SAM. */
static uint32_t read_sam(struct config *c, struct sizes *z, uint32_t *patch)
{
    cJSON *const tower = enter(c, "sam_config");
    const cJSON *channels = json_get(c->root, "downsample_channels"), *first = json_first(channels);
    const double halved = first ? first->valuedouble : 512;
    const double out = first && first->next ? first->next->valuedouble : 896;
    *z = (struct sizes){.fitted = true};
    const bool read = read_sizes(c, z, patch);
    if (!(halved >= 1 && halved <= 1 << 14 && out >= 1 && out <= 1 << 14))
        config_fail(c, "`downsample_channels` must be two numbers");
    else
        z->halved = (uint32_t)halved, z->out = (uint32_t)out;
    if (read && z->side % 16)
        config_fail(c, "`image_size` must be a multiple of 16 patches");
    c->root = tower;
    return c->failed ? 0 : z->side / 4;
}

static void configure_before(struct config *c, struct encoder_spec *s)
{
    struct sizes z;
    uint32_t patch = 1;
    s->patch = s->cell = s->frames = s->project.join = s->width = 1;
    if (!read_sam(c, &z, &patch))
        return;
    cJSON *const tower = enter(c, "sam_config");
    s->conv.names = names_deepseek;
    sam(c, s, &z, patch);
    c->root = tower;
}

/* Qwen2's blocks. */
static void decode(struct config *c, struct encoder_spec *s)
{
    cJSON *const tower = enter(c, "encoder_config");
    struct decoder_spec *b = &s->blocks;
    family_blocks(c, s, &(struct block_keys){BLOCK_KEYS, "silu", 896, 24, 14, 4864, 1e-6, 1});
    b->n_kv_heads = config_u32_or(c, "num_key_value_heads", b->n_heads, 1, 1u << 16);
    if (b->n_heads % b->n_kv_heads)
        config_fail(c, "`num_key_value_heads` does not divide %u heads", b->n_heads);
    b->norm =
        (struct norm_spec){.kind = NORM_RMS, .eps = (float)config_num_or(c, "rms_norm_eps", 1e-6)};
    b->bias.norm = b->bias.o = b->bias.mlp = false;
    b->mlp = MLP_GATED;
    config_only(c, "use_sliding_window", false);
    b->rope[0].dim = b->head_dim;
    config_rope(c, b, 10000);
    if (b->rope[0].has_axes || b->rope[0].kind == ROPE_DYNAMIC || b->head_dim % 2)
        config_fail(c, "`rope_type` of `encoder_config` is not supported");
    for (uint32_t i = 0; i < b->n_layers; i++)
        b->layers[i].mutual = MUTUAL_ALONE;
    s->of_features = true;
    s->patch_bias = false;
    s->patch = 1;
    c->root = tower;
}

static void configure_deepseek(struct config *c, struct encoder_spec *s)
{
    struct sizes z;
    uint32_t patch = 1;
    decode(c, s);
    const uint32_t side = read_sam(c, &z, &patch), less = side / 4 * 3;
    s->queries =
        (struct encoder_queries){2, {side * side, less * less}, {W_QUERIES_MANY, W_QUERIES_FEW}};
    if (side && z.out != s->blocks.hidden)
        config_fail(c, "`hidden_size` of `encoder_config` must be the last of "
                       "`downsample_channels`");
    s->image_end = true;
    s->project = (struct encoder_projection){
        .join = 1, .linear = {{W_PROJECT_OUT, s->width, true}}, .n_linears = 1};
}

#define DECODER(x) "model.vision_tower.vision_encoder." x
static const struct encoder_family before = {
    .names = {.prefix = "model."},
    .configure = configure_before,
};
const struct encoder_family family_deepseek_ocr2 = {
    .types = (const char *const[]){"deepseek_ocr2", NULL},
    .names = {.names = {[W_ATTN_NORM] = DECODER("layers.*.input_layernorm"),
                        [W_MLP_NORM] = DECODER("layers.*.post_attention_layernorm"),
                        [W_Q] = DECODER("layers.*.self_attn.q_proj"),
                        [W_K] = DECODER("layers.*.self_attn.k_proj"),
                        [W_V] = DECODER("layers.*.self_attn.v_proj"),
                        [W_O] = DECODER("layers.*.self_attn.o_proj"),
                        [W_GATE] = DECODER("layers.*.mlp.gate_proj"),
                        [W_UP] = DECODER("layers.*.mlp.up_proj"),
                        [W_DOWN] = DECODER("layers.*.mlp.down_proj"),
                        [W_FINAL_NORM] = DECODER("norm"),
                        [W_QUERIES_FEW] = "model.vision_tower.query_768_resolution",
                        [W_QUERIES_MANY] = "model.vision_tower.query_1024_resolution",
                        [W_ROW_END] = "model.view_separator",
                        [W_PROJECT_OUT] = "model.multi_modal_projector"},
              .prefix = "model."},
    .configure = configure_deepseek,
    .before = &before,
};
