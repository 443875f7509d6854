#include "model-server/encoder/family.h"
#include "common/model/model_file.h"
#include <string.h>

/* Every family: const struct encoder_family family_NAME in a file of family/ (Makefile). */
#define ROW(name) extern const struct encoder_family family_##name;
#include "towers.h"
#undef ROW
#define ROW(name) &family_##name,
static const struct encoder_family *const families[] = {
#include "towers.h"
};
#undef ROW
enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

static const struct encoder_family *find(const char *type, const char *tower)
{
    for (int i = 0; i < N_FAMILIES; i++)
        for (const char *const *t = families[i]->types; *t; t++)
            if (strcmp(*t, type) == 0 &&
                (!families[i]->tower || strcmp(families[i]->tower, tower) == 0))
                return families[i];
    return NULL;
}

/* The steps go through a picture of the reserved size. */
static void check_conv(struct config *c, struct conv_spec *s)
{
    const struct conv_shape in = conv_reserved(s);
    struct conv_shape shape[CONV_GRIDS];
    if (c->failed || !s->n)
        return;
    if (s->n > CONV_MAX_STEPS)
        config_fail(c, "a tower of %u steps of convolutions", s->n);
    else if (!conv_shapes(s, s->n, in.height, in.width, shape))
        config_fail(c, "the tower's convolutions do not fit %u pixels a side", s->side);
    else
        s->unit = s->queries ? 1 : s->side / shape[0].height;
}

static void fill_spec(struct config *c, const struct encoder_family *family,
                      struct encoder_spec *out)
{
    c->root = (cJSON *)(uintptr_t)model_file_vision_config(c->file);
    family->configure(c, out);
    check_conv(c, &out->conv);
}

int encoder_configure(const char *path, const struct encoder_family **family,
                      struct encoder_spec *out, struct err *e)
{
    struct config c;
    memset(out, 0, sizeof(*out));
    *family = NULL;
    if (config_open(&c, path, NULL, e))
        return -1;
    const cJSON *vision = model_file_vision_config(c.file);
    if (vision)
        *family = find(json_str(c.file, "model_type", ""),
                       json_str(vision, "model_name", json_str(vision, "model_type", "")));
    if (*family)
        fill_spec(&c, *family, out);
    config_close(&c);
    return c.failed ? -1 : 0;
}

int encoder_configure_as(const char *path, const struct encoder_family *family,
                         struct encoder_spec *out, struct err *e)
{
    struct config c;
    memset(out, 0, sizeof(*out));
    if (config_open(&c, path, NULL, e))
        return -1;
    fill_spec(&c, family, out);
    config_close(&c);
    return c.failed ? -1 : 0;
}

static uint32_t dim(struct config *c, const char *key, uint32_t def)
{
    return def ? config_u32_or(c, key, def, 1, 1u << 20) : config_u32(c, key, 1, 1u << 20);
}

void family_blocks(struct config *c, struct encoder_spec *s, const struct block_keys *k)
{
    struct decoder_spec *b = &s->blocks;
    b->hidden = dim(c, k->hidden, k->hidden_or);
    b->n_layers = dim(c, k->layers, k->layers_or);
    b->n_heads = b->n_kv_heads = dim(c, k->heads, k->heads_or);
    b->ffn = dim(c, k->ffn, k->ffn_or);
    if (b->n_layers > SPEC_MAX_LAYERS || b->n_heads > 1u << 16) {
        config_fail(c, "a tower of %u layers and %u heads", b->n_layers, b->n_heads);
        b->n_layers = 1;
        return;
    }
    b->head_dim = config_head_dim(c, 0, b->hidden, b->n_heads);
    b->vocab = b->hidden; /* it has none; ranks divide it all the same */
    b->norm = (struct norm_spec){.kind = NORM_LAYER,
                                 .eps = (float)config_num_or(c, "layer_norm_eps", k->eps)};
    b->mlp = MLP_PLAIN;
    b->act = config_act(c, "hidden_act", k->act_default);
    b->bias.norm = b->bias.qkv = b->bias.o = b->bias.mlp = true;
    b->both_ways = b->no_head = true;
    b->embed_scale = b->residual_scale = b->logit_scale = 1;
    for (uint32_t i = 0; i < b->n_layers; i++)
        b->layers[i] = (struct layer_spec){.attn_scale = spec_head_scale(b)};
    s->frames = s->cell = s->project.join = 1;
    s->patch_bias = true;
    s->patch = family_square(c, "patch_size", k->patch_or);
    if (s->patch < 1 || s->patch > 64) {
        config_fail(c, "`patch_size` must be a number from 1 to 64");
        s->patch = 1;
    }
    s->width = family_text_width(c);
}

void family_siglip_blocks(struct config *c, struct encoder_spec *s, uint32_t hidden_or,
                          uint32_t layers_or, uint32_t heads_or, uint32_t ffn_or)
{
    family_blocks(c, s,
                  &(struct block_keys){BLOCK_KEYS, "gelu_pytorch_tanh", hidden_or, layers_or,
                                       heads_or, ffn_or, 1e-6});
}

void family_positions(struct config *c, struct encoder_spec *s, enum encoder_positions kind,
                      uint32_t image_size)
{
    s->positions = kind;
    s->side = image_size / s->patch;
    if (!s->side)
        config_fail(c, "`image_size` must hold a patch");
}

void family_two_matrices(struct encoder_spec *s, bool bias, enum act act)
{
    s->project = (struct encoder_projection){
        .join = 1,
        .linear = {{W_PROJECT_IN, s->width, bias}, {W_PROJECT_OUT, s->width, bias, true}},
        .n_linears = 2,
        .act = act};
}

void family_merger(const struct encoder_spec *s, struct encoder_projection *p, uint32_t rows)
{
    const uint32_t joined = s->blocks.hidden * s->cell * s->cell;
    *p = (struct encoder_projection){
        .norm = true,
        .norm_spec = s->blocks.norm,
        .norm_bias = s->blocks.bias.norm,
        .norm_role = W_PROJECT_NORM,
        .join = s->cell * s->cell,
        .linear = {{W_PROJECT_IN, joined, true}, {W_PROJECT_OUT, rows, true, .act_before = true}},
        .n_linears = 2,
        .act = ACT_GELU};
}

void family_reads_rows(struct encoder_spec *s, uint32_t n, uint32_t width, uint32_t out, float eps)
{
    s->patch = s->cell = s->frames = s->project.join = 1;
    s->of_features = true;
    s->width = s->blocks.hidden = out;
    s->conv.norm = (struct norm_spec){.kind = NORM_LAYER, .eps = eps};
    s->conv.queries = true;
    s->conv.list = n;
    s->conv.channels = width;
    s->conv.side = 1;
}

/* A rotation of the first `dim` elements of a head; the caller gives its angles coordinates. */
static void grid_rope(struct config *c, struct encoder_spec *s, enum rope_kind kind, uint32_t dim)
{
    struct rope_spec *r = &s->blocks.rope[0];
    const cJSON *parameters = json_get(c->root, "rope_parameters");
    const double theta = json_num(parameters, "rope_theta", config_num_or(c, "rope_theta", 10000));
    *r = (struct rope_spec){
        .kind = kind, .dim = dim, .theta = theta, .attention_factor = 1, .has_axes = true};
    const char *word = json_str(parameters, "rope_type", "axial");
    if (strcmp(word, "axial") != 0 && strcmp(word, "default") != 0)
        config_fail(c, "rope `rope_type` %.40s is not supported in a tower", word);
    if (!(theta > 1))
        config_fail(c, "`rope_theta` %g is out of bounds", theta);
}

void family_grid_rope(struct config *c, struct encoder_spec *s, enum rope_kind kind)
{
    struct rope_spec *r = &s->blocks.rope[0];
    const uint32_t dim = s->blocks.head_dim;
    grid_rope(c, s, kind, dim);
    if (dim % 4 || dim > ROPE_MAX_DIM) {
        config_fail(c, "a head of %u does not turn by rows and columns", dim);
        return;
    }
    r->runs = 2;
    for (uint32_t i = 0; i < dim / 2; i++)
        r->axis[i] = kind == ROPE_GRID_WOVEN ? 2 - i % 2 : i < dim / 4 ? 1 : 2;
}

void family_video_rope(struct config *c, struct encoder_spec *s)
{
    struct rope_spec *r = &s->blocks.rope[0];
    const uint32_t dim = s->blocks.head_dim / 6 * 6;
    grid_rope(c, s, ROPE_GRID, dim);
    if (!dim || dim > ROPE_MAX_DIM) {
        config_fail(c, "a head of %u does not turn by frames, rows and columns", dim);
        return;
    }
    r->runs = 3;
    for (uint32_t i = 0; i < dim / 2; i++)
        r->axis[i] = (uint8_t)(i / (dim / 6));
}

void family_columns_first(struct encoder_spec *s)
{
    for (uint32_t i = 0; i < s->blocks.head_dim / 2 && i < ROPE_MAX_DIM / 2; i++)
        s->blocks.rope[0].axis[i] = i < s->blocks.head_dim / 4 ? 2 : 1;
}

uint32_t family_root(struct config *c, const char *key, uint32_t def)
{
    const uint32_t places = config_u32_or(c, key, def, 1, 1u << 20);
    uint32_t side = 0;
    while ((side + 1) * (side + 1) <= places)
        side++;
    if (side * side != places)
        config_fail(c, "`%s` is no square", key);
    return side;
}

void family_only_word(struct config *c, const char *key, const char *word)
{
    if (strcmp(json_str(c->file, key, word), word) != 0)
        config_fail(c, "`%s` must be %s", key, word);
}

enum act family_word_act(struct config *c, const char *key, const char *def)
{
    cJSON *tower = c->root;
    c->root = c->file;
    const enum act act = config_act(c, key, def);
    c->root = tower;
    return act;
}

uint32_t family_text_width(struct config *c)
{
    const cJSON *text = model_file_text_config(c->file); /* BART's width is `d_model` */
    const double n = json_num(text, json_get(text, "d_model") ? "d_model" : "hidden_size", 4096);
    if (n >= 1 && n <= 1 << 20)
        return (uint32_t)n;
    config_fail(c, "`hidden_size` of the text model is out of bounds");
    return 1;
}

void family_levels(struct config *c, struct encoder_spec *s)
{
    const cJSON *j, *at = json_get(c->root, "deepstack_visual_indexes");
    cJSON_ArrayForEach(j, at)
    {
        if (s->n_levels == ENCODER_MAX_LEVELS || !cJSON_IsNumber(j) || !(j->valuedouble >= 0) ||
            !(j->valuedouble < s->blocks.n_layers) ||
            (s->n_levels && j->valuedouble <= s->level_at[s->n_levels - 1])) {
            config_fail(c, "`deepstack_visual_indexes` must be up to %d layers that ascend",
                        ENCODER_MAX_LEVELS);
            return;
        }
        s->level_at[s->n_levels++] = (uint32_t)j->valuedouble;
    }
}

float family_feature_scale(struct config *c)
{
    const double by = json_num(model_file_text_config(c->file), "embedding_multiplier", 1);
    if (!(by > 0 && by < 1e6))
        config_fail(c, "`embedding_multiplier` of the text model is out of bounds");
    return by == 1 ? 0 : (float)by;
}

uint32_t family_layers_used(struct config *c, uint32_t n, const char *key, int def)
{
    return family_layer_at(c, n, key, json_num(c->file, key, def));
}

uint32_t family_layer_at(struct config *c, uint32_t n, const char *key, double at)
{
    const double used = at < 0 ? n + 1 + at : at;
    if (used >= 1 && used <= n && used == (uint32_t)used)
        return (uint32_t)used;
    config_fail(c, "`%s` is no layer of the tower", key);
    return 1;
}

uint32_t family_square(struct config *c, const char *key, uint32_t def)
{
    const cJSON *v = json_get(c->root, key), *first = cJSON_IsArray(v) ? json_first(v) : v;
    const double n = first && cJSON_IsNumber(first) ? first->valuedouble : 0;
    const cJSON *other = first && first != v ? first->next : first;
    if (!v)
        return def;
    if (n >= 1 && n <= 1 << 14 && n == (uint32_t)n && other && other->valuedouble == n)
        return (uint32_t)n;
    config_fail(c, "`%s` must be a square", key);
    return 1;
}
