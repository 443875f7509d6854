/* Florence-2 (arXiv 2311.06242): DaViT (2204.03645), whose blocks attend within windows and then
 * over channels. Features are its places, with positions, and before them their mean. */
#include "common/json/json.h"
#include "model-server/encoder/family.h"

/* Grids: two that the stream alternates between, and what a block computes in between. */
enum { STREAM, OTHER, A, B };
enum { MOST_STAGES = 4, MOST_BLOCKS = 64 };

/* Numbers of tensor names; those of a spatial block, then the same of a channel block. */
enum {
    EMBED = 1,
    EMBED_NORM,
    SPATIAL,
    CHANNEL = SPATIAL + 8,
    COLUMNS = CHANNEL + 8, /* and rows, and the only time of a picture */
    PROJECT = COLUMNS + 3,
    PROJECT_NORM
};
enum { CONV_1, NORM_1, QKV, OUT, CONV_2, NORM_2, UP, DOWN }; /* of a block */
#define TOWER "model.vision_tower."
#define BLOCK(kind, attention)                                                                     \
    TOWER "blocks.*.*." kind ".conv1", TOWER "blocks.*.*." kind ".norm1",                          \
        TOWER "blocks.*.*." kind "." attention ".qkv",                                             \
        TOWER "blocks.*.*." kind "." attention ".proj", TOWER "blocks.*.*." kind ".conv2",         \
        TOWER "blocks.*.*." kind ".norm2", TOWER "blocks.*.*." kind ".ffn.fc1",                    \
        TOWER "blocks.*.*." kind ".ffn.fc2"
#define PROJECTOR "model.multi_modal_projector."
static const char *const names[] = {"",
                                    TOWER "convs.*.conv",
                                    TOWER "convs.*.norm",
                                    BLOCK("spatial_block", "window_attn"),
                                    BLOCK("channel_block", "channel_attn"),
                                    PROJECTOR "image_position_embed.column_embeddings.weight",
                                    PROJECTOR "image_position_embed.row_embeddings.weight",
                                    PROJECTOR "visual_temporal_embed.pos_idx_to_embed",
                                    PROJECTOR "image_projection",
                                    PROJECTOR "image_proj_norm",
                                    NULL};

struct stage {
    uint32_t width, heads, groups, mlp, depth, patch, stride, padding;
    bool norm_first;
};
struct sizes {
    uint32_t n, window;
    bool qkv_bias;
    enum act act;
    struct stage stage[MOST_STAGES];
};

/* ---------------------------------------------------------------- config.json */

/* Element `i` of a list of vision_config with as many elements as stages. */
static uint32_t of_list(struct config *c, const char *key, uint32_t i, const uint32_t *def,
                        uint32_t most)
{
    const cJSON *list = json_get(c->root, key), *at = list ? json_first(list) : NULL;
    for (uint32_t k = 0; at && k < i; k++)
        at = at->next;
    const double n = at ? at->valuedouble : list ? -1.0 : (double)def[i];
    if (at && cJSON_IsBool(at))
        return cJSON_IsTrue(at);
    if (n >= 0 && n <= most && n == (uint32_t)n)
        return (uint32_t)n;
    config_fail(c, "`%s` must have a number for each stage, of at most %u", key, most);
    return 1;
}

static void read_stage(struct config *c, struct sizes *z, uint32_t i, double ratio)
{
    static const uint32_t width[] = {128, 256, 512, 1024}, heads[] = {4, 8, 16, 32},
                          depth[] = {1, 1, 9, 1}, patch[] = {7, 3, 3, 3}, stride[] = {4, 2, 2, 2},
                          padding[] = {3, 1, 1, 1}, first[] = {0, 1, 1, 1};
    struct stage *s = &z->stage[i];
    *s = (struct stage){.width = of_list(c, "embed_dim", i, width, 1u << 14),
                        .heads = of_list(c, "num_heads", i, heads, 1u << 10),
                        .groups = of_list(c, "num_groups", i, heads, 1u << 10),
                        .depth = of_list(c, "depths", i, depth, MOST_BLOCKS),
                        .patch = of_list(c, "patch_size", i, patch, CONV_MAX_SIZE),
                        .stride = of_list(c, "patch_stride", i, stride, CONV_MAX_SIZE),
                        .padding = of_list(c, "patch_padding", i, padding, CONV_MAX_SIZE),
                        .norm_first = of_list(c, "patch_prenorm", i, first, 1)};
    s->mlp = (uint32_t)(s->width * ratio);
    if (!s->width || !s->heads || !s->groups || !s->mlp || s->width % s->heads ||
        s->width % s->groups)
        config_fail(c, "`embed_dim`, `num_heads` and `num_groups` disagree");
    if (!s->stride || s->patch % 2 == 0 || s->padding != s->patch / 2)
        config_fail(c, "`patch_padding` must be half of an odd `patch_size`");
}

static void read_sizes(struct config *c, struct sizes *z)
{
    const cJSON *widths = json_get(c->root, "embed_dim");
    const double ratio = config_num_or(c, "mlp_ratio", 4);
    z->n = widths ? (uint32_t)cJSON_GetArraySize(widths) : MOST_STAGES;
    z->window = config_u32_or(c, "window_size", 12, 1, 64);
    z->qkv_bias = config_bool_or(c, "qkv_bias", true);
    z->act = config_act(c, "activation_function", "gelu");
    if (z->n < 1 || z->n > MOST_STAGES || !(ratio > 0 && ratio <= 64)) {
        config_fail(c, "`embed_dim` must have 1 to %d stages, and `mlp_ratio` be up to 64",
                    MOST_STAGES);
        return;
    }
    for (uint32_t i = 0; i < z->n && !c->failed; i++)
        read_stage(c, z, i, ratio);
    family_only_word(c, "projector_hidden_act", "gelu"); /* there is none */
}

/* ---------------------------------------------------------------- steps */

static struct conv_step at(struct conv_step c, uint16_t stage, uint16_t block)
{
    c.at[0] = stage;
    c.at[1] = block;
    return c;
}

/* A smaller grid with other channels, and a norm before or behind it. The stream stays in its
 * grid. */
static void embed(struct conv_spec *s, const struct stage *z, uint16_t stage)
{
    const uint8_t from = z->norm_first ? A : STREAM, to = z->norm_first ? STREAM : A;
    struct conv_step c = conv_linear(from, to, z->width, EMBED);
    c.size = (uint8_t)z->patch;
    c.stride = (uint8_t)z->stride;
    if (z->norm_first)
        conv_add(s, at(conv_norm(STREAM, A, EMBED_NORM), stage, 0));
    conv_add(s, at(c, stage, 0));
    if (!z->norm_first)
        conv_add(s, at(conv_norm(A, STREAM, EMBED_NORM), stage, 0));
}

/* The stream plus a depthwise convolution of it, to another grid. */
static struct conv_step mix(uint8_t from, uint8_t to, uint32_t width, uint8_t weight)
{
    struct conv_step c = conv_depthwise(conv_linear(from, to, width, weight), 3, 1);
    c.plus_self = true;
    return c;
}

static struct conv_step alone(enum conv_kind kind, uint8_t from, uint8_t to, uint32_t window)
{
    return (struct conv_step){
        .kind = kind, .from = from, .to = to, .size = (uint8_t)window, .act = ACT_N};
}

/* Attention within windows, whose empty places are keys, too. From and to A. */
static void within_windows(struct conv_spec *s, const struct sizes *z, const struct stage *g,
                           struct conv_step qkv)
{
    const uint32_t dim = g->width / g->heads;
    struct conv_step c = alone(CONV_ATTEND, A, B, z->window), merge;
    conv_add(s, alone(CONV_SPLIT, A, B, z->window));
    qkv.from = B, qkv.to = A;
    conv_add(s, qkv);
    c.with = A;
    c.heads = c.kv_heads = g->heads;
    c.head_dim = dim;
    conv_add(s, c);
    merge = alone(CONV_MERGE, B, A, z->window);
    merge.with = OTHER;
    conv_add(s, merge);
}

static void over_channels(struct conv_spec *s, const struct stage *g, struct conv_step qkv)
{
    struct conv_step c = alone(CONV_CHANNELS, B, A, 0);
    c.heads = g->groups;
    qkv.from = A, qkv.to = B;
    conv_add(s, qkv);
    conv_add(s, c);
}

static void block(struct conv_spec *s, const struct sizes *z, uint16_t stage, uint16_t nth,
                  uint8_t name, bool windows)
{
    const struct stage *g = &z->stage[stage];
    struct conv_step c = at(conv_linear(A, B, 3 * g->width, (uint8_t)(name + QKV)), stage, nth);
    c.bias = z->qkv_bias;
    conv_add(s, at(mix(STREAM, OTHER, g->width, (uint8_t)(name + CONV_1)), stage, nth));
    conv_add(s, at(conv_norm(OTHER, A, (uint8_t)(name + NORM_1)), stage, nth));
    if (windows)
        within_windows(s, z, g, c);
    else
        over_channels(s, g, c);
    c = at(conv_linear(A, OTHER, g->width, (uint8_t)(name + OUT)), stage, nth);
    c.add = true;
    conv_add(s, c);
    conv_add(s, at(mix(OTHER, STREAM, g->width, (uint8_t)(name + CONV_2)), stage, nth));
    conv_add(s, at(conv_norm(STREAM, A, (uint8_t)(name + NORM_2)), stage, nth));
    c = at(conv_linear(A, B, g->mlp, (uint8_t)(name + UP)), stage, nth);
    c.act = z->act;
    conv_add(s, c);
    c = at(conv_linear(B, STREAM, g->width, (uint8_t)(name + DOWN)), stage, nth);
    c.add = true;
    conv_add(s, c);
}

/* Positions, the mean of all places before them, a product and a norm. */
static void project(struct conv_spec *s, struct config *c, uint32_t width)
{
    struct conv_step places = alone(CONV_AXES, STREAM, A, 0);
    struct conv_step all = alone(CONV_APPEND, B, OTHER, 0);
    struct conv_step out = conv_linear(OTHER, STREAM, width, PROJECT);
    places.weight = COLUMNS;
    places.rows = config_u32_or(c, "max_position_embeddings", 50, 1, 1u << 12);
    places.stored = config_u32_or(c, "max_temporal_embeddings", 100, 1, 1u << 16);
    conv_add(s, places);
    conv_add(s, alone(CONV_MEAN, A, B, 1));
    all.with = A;
    conv_add(s, all);
    out.bias = false;
    out.norm = PROJECT_NORM;
    conv_add(s, out);
}

/* Pixels of a side: as published, or as many as there are positions. */
static uint32_t reserved_side(struct config *c, const struct sizes *z)
{
    enum { PUBLISHED = 768 };
    uint32_t most = config_u32_or(c, "max_position_embeddings", 50, 1, 1u << 12);
    for (uint32_t i = 0; i < z->n && most < PUBLISHED; i++)
        most *= z->stage[i].stride;
    return most < PUBLISHED ? most : PUBLISHED;
}

static void configure(struct config *c, struct encoder_spec *s)
{
    struct sizes z = {0};
    s->patch = s->cell = s->frames = s->project.join = 1;
    s->width = s->blocks.hidden = family_text_width(c);
    read_sizes(c, &z);
    if (config_u32_or(c, "projection_dim", s->width, 1, 1u << 20) != s->width)
        config_fail(c, "`projection_dim` must be the text model's width");
    if (config_u32_or(c, "in_channels", 3, 1, 1u << 10) != 3)
        config_fail(c, "`in_channels` must be 3");
    if (c->failed)
        return;
    s->conv.names = names;
    s->conv.norm = (struct norm_spec){.kind = NORM_LAYER, .eps = 1e-5F};
    s->conv.side = reserved_side(c, &z);
    s->conv.queries = true; /* the mean has no place */
    for (uint32_t i = 0; i < z.n; i++) {
        embed(&s->conv, &z.stage[i], (uint16_t)i);
        for (uint32_t k = 0; k < z.stage[i].depth; k++) {
            block(&s->conv, &z, (uint16_t)i, (uint16_t)k, SPATIAL, true);
            block(&s->conv, &z, (uint16_t)i, (uint16_t)k, CHANNEL, false);
        }
    }
    project(&s->conv, c, s->width);
}

const struct encoder_family family_florence2 = {
    .types = (const char *const[]){"florence2", NULL},
    .names = {.prefix = "model."},
    .configure = configure,
};
