/* LFM3-VL: layers of gated depthwise convolutions over the grid of patches, some of attention with
 * rotations by row and column, as a list of steps (conv_spec.h) behind a tower that only makes the
 * patches. A feature is made of a cell of patches. */
#include "common/json/json.h"
#include "model-server/encoder/family.h"
#include <string.h>

/* Grids: the patches and at the end the features; the input of a sublayer; what steps leave. */
enum { STREAM, IN, A, B, C };

/* Names of tensors; K and V follow Q, the keys' norm that of the queries. */
enum {
    OPERATOR_NORM = 1,
    CONV_IN,
    CONV,
    CONV_OUT,
    Q,
    Q_NORM = Q + 3,
    ATTN_OUT = Q_NORM + 2,
    FFN_NORM,
    GATE,
    UP,
    DOWN,
    MERGE_NORM,
    MERGE_IN,
    MERGE_OUT
};
#define TOWER "model.vision_tower."
#define LAYER TOWER "layers.*."
#define ATTN  LAYER "self_attn."
#define MERGE "model.multi_modal_projector."
static const char *const names[] = {[0] = "",
                                    [OPERATOR_NORM] = LAYER "operator_norm",
                                    [CONV_IN] = LAYER "conv.in_proj",
                                    [CONV] = LAYER "conv.spatial_conv",
                                    [CONV_OUT] = LAYER "conv.out_proj",
                                    [Q] = ATTN "q_proj",
                                    [Q + 1] = ATTN "k_proj",
                                    [Q + 2] = ATTN "v_proj",
                                    [Q_NORM] = ATTN "q_layernorm|" ATTN "q_norm",
                                    [Q_NORM + 1] = ATTN "k_layernorm|" ATTN "k_norm",
                                    [ATTN_OUT] = ATTN "out_proj",
                                    [FFN_NORM] = LAYER "ffn_norm",
                                    [GATE] = LAYER "feed_forward.w1",
                                    [UP] = LAYER "feed_forward.w3",
                                    [DOWN] = LAYER "feed_forward.w2",
                                    [MERGE_NORM] = MERGE "layer_norm",
                                    [MERGE_IN] = MERGE "linear_1",
                                    [MERGE_OUT] = MERGE "linear_2",
                                    [MERGE_OUT + 1] = NULL};

struct sizes {
    uint32_t hidden, layers, heads, kv_heads, dim, mlp, kernel, merge, middle;
    bool merge_bias;
    enum act act;
};

static void add(struct conv_spec *s, struct conv_step c, uint16_t layer)
{
    c.at[0] = layer;
    conv_add(s, c);
}

static void times(struct conv_spec *s, uint8_t a, uint8_t b, uint8_t to)
{
    conv_add(s,
             (struct conv_step){.kind = CONV_TIMES, .from = a, .with = b, .to = to, .act = ACT_N});
}

/* What a sublayer computed is added to the stream by its last matrix. */
static void close_sublayer(struct conv_spec *s, uint8_t from, uint32_t width, uint8_t name,
                           uint16_t layer)
{
    struct conv_step c = conv_product(from, STREAM, width, name);
    c.add = true;
    add(s, c, layer);
}

/* The input and the result of the convolution are multiplied by gates. The matrix has the first
 * gate, then the second, then what is convolved. */
static void convolve(struct conv_spec *s, const struct sizes *z, uint16_t layer)
{
    static const uint8_t to[] = {A, B, C};
    for (uint32_t i = 0; i < 3; i++) {
        struct conv_step c = conv_product(IN, to[i], z->hidden, CONV_IN);
        c.stored = 3 * z->hidden;
        c.first = i * z->hidden;
        add(s, c, layer);
    }
    times(s, A, C, IN);
    add(s, conv_depthwise(conv_product(IN, A, z->hidden, CONV), (uint8_t)z->kernel, 1), layer);
    times(s, A, B, C);
    close_sublayer(s, C, z->hidden, CONV_OUT, layer);
}

static void attend(struct conv_spec *s, const struct sizes *z, uint16_t layer)
{
    struct conv_step c = conv_product(IN, A, (z->heads + 2 * z->kv_heads) * z->dim, Q);
    c.stacked = 3;
    c.heads = z->heads;
    c.kv_heads = z->kv_heads;
    c.head_dim = z->dim;
    add(s, c, layer);
    c = conv_attend(A, A, B, z->heads, z->dim);
    c.kv_heads = z->kv_heads;
    c.turns = true;
    c.weight = Q_NORM;
    add(s, c, layer);
    close_sublayer(s, B, z->hidden, ATTN_OUT, layer);
}

static void feed_forward(struct conv_spec *s, const struct sizes *z, uint16_t layer)
{
    struct conv_step c = conv_product(IN, A, z->mlp, GATE);
    add(s, conv_norm(STREAM, IN, FFN_NORM), layer);
    c.act = ACT_SILU;
    add(s, c, layer);
    add(s, conv_product(IN, B, z->mlp, UP), layer);
    times(s, A, B, C);
    close_sublayer(s, C, z->hidden, DOWN, layer);
}

/* A norm of each patch, then two matrices on the patches of a cell side by side. */
static void merge(struct conv_spec *s, const struct sizes *z, uint32_t width)
{
    struct conv_step c = conv_norm(STREAM, IN, MERGE_NORM);
    c.layer_norm = true;
    c.eps = 1e-6F;
    conv_add(s, c);
    c = conv_linear(IN, A, z->middle, MERGE_IN);
    c.size = c.stride = (uint8_t)z->merge;
    c.same = c.places_first = true;
    c.act = z->act;
    c.bias = z->merge_bias;
    conv_add(s, c);
    c = conv_linear(A, STREAM, width, MERGE_OUT);
    c.bias = z->merge_bias;
    conv_add(s, c);
}

/* The kind of a layer; without a list every other one from the third on attends. */
static bool attends(struct config *c, uint32_t layer)
{
    const cJSON *list = json_get(c->root, "layer_types");
    const cJSON *kind = cJSON_GetArrayItem(list, (int)layer);
    if (!list || cJSON_IsNull(list))
        return layer >= 2 && layer % 2 == 0;
    const char *word = kind && cJSON_IsString(kind) ? kind->valuestring : "";
    if (strcmp(word, "conv") != 0 && strcmp(word, "full_attention") != 0)
        config_fail(c, "layers of type `%.40s` are not supported in a tower", word);
    return strcmp(word, "full_attention") == 0;
}

static struct sizes read_sizes(struct config *c)
{
    const double middle = json_num(c->file, "projector_hidden_size", 4096);
    struct sizes z = {.hidden = config_u32_or(c, "hidden_size", 1024, 1, 1u << 16),
                      .layers = config_u32_or(c, "num_hidden_layers", 14, 1, 32),
                      .heads = config_u32_or(c, "num_attention_heads", 16, 1, 1u << 10),
                      .kv_heads = config_u32_or(c, "num_key_value_heads", 8, 1, 1u << 10),
                      .mlp = config_u32_or(c, "intermediate_size", 2560, 1, 1u << 20),
                      .kernel = config_u32_or(c, "conv_kernel_size", 3, 1, CONV_MAX_SIZE - 1),
                      .merge = config_u32_or(c, "spatial_merge_size", 2, 1, 8),
                      .merge_bias = json_bool(c->file, "projector_bias", true),
                      .act = family_word_act(c, "projector_hidden_act", "gelu")};
    if (middle >= 1 && middle <= 1 << 20)
        z.middle = (uint32_t)middle;
    else
        config_fail(c, "`projector_hidden_size` is out of bounds");
    if (z.hidden % z.heads || z.heads % z.kv_heads)
        config_fail(c, "%u channels are not divided by %u heads, or these by %u", z.hidden, z.heads,
                    z.kv_heads);
    if (z.kernel % 2 == 0)
        config_fail(c, "`conv_kernel_size` must be odd");
    z.dim = z.hidden / z.heads;
    return z;
}

enum { RESERVED = 64 }; /* patches a side for which memory is reserved */

static void configure(struct config *c, struct encoder_spec *s)
{
    const struct sizes z = read_sizes(c);
    s->patch = s->cell = s->frames = s->project.join = 1;
    s->of_features = true;
    s->width = s->blocks.hidden = family_text_width(c);
    s->blocks.head_dim = z.dim;
    s->conv.names = names;
    s->conv.norm =
        (struct norm_spec){.kind = NORM_RMS, .eps = (float)config_num_or(c, "norm_eps", 1e-5)};
    s->conv.channels = z.hidden;
    s->conv.side = RESERVED / z.merge * z.merge;
    family_grid_rope(c, s, ROPE_GRID);
    if (!json_get(json_get(c->root, "rope_parameters"), "rope_theta") &&
        !json_get(c->root, "rope_theta"))
        s->blocks.rope[0].theta = 1000000;
    for (uint32_t i = 0; i < z.layers && !c->failed; i++) {
        add(&s->conv, conv_norm(STREAM, IN, OPERATOR_NORM), (uint16_t)i);
        (attends(c, i) ? attend : convolve)(&s->conv, &z, (uint16_t)i);
        feed_forward(&s->conv, &z, (uint16_t)i);
    }
    merge(&s->conv, &z, s->width);
}

/* Patches and their norm. */
static void configure_patches(struct config *c, struct encoder_spec *s)
{
    struct decoder_spec *b = &s->blocks;
    family_blocks(c, s, /* only the first of these keys is in files */
                  &(struct block_keys){"hidden_size", "layers", "heads", "ffn", "gelu", 1024, 1, 1,
                                       1, 1e-5, 16});
    b->n_layers = 1;
    b->n_heads = b->n_kv_heads = 1;
    b->layers[0] = (struct layer_spec){.mixer = MIXER_NONE, .no_ffn = true};
    b->norm =
        (struct norm_spec){.kind = NORM_RMS, .eps = (float)config_num_or(c, "norm_eps", 1e-5)};
    b->bias.norm = false;
    b->embed_norm = b->no_first_norm = b->no_final_norm = true;
    s->frames = config_u32_or(c, "temporal_patch_size", 2, 1, 8);
    s->patch_bias = false;
    s->width = b->hidden;
}

static const struct encoder_family patches = {
    .names = {.names = {[W_PATCH] = TOWER "patchifier|" TOWER "patch_embed",
                        [W_EMBED_NORM] = TOWER "embedding_norm"},
              .prefix = "model."},
    .configure = configure_patches,
};
const struct encoder_family family_lfm3_vl = {
    .types = (const char *const[]){"lfm3_vl", NULL},
    .names = {.prefix = "model."},
    .configure = configure,
    .before = &patches,
};
