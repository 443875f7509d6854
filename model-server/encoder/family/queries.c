/* Towers whose patches are read by learned queries: BLIP-2 (arXiv 2301.12597), by a Q-Former, and
 * Aria (2410.05993), by one layer. A tower of patches comes before; the queries are a list of steps
 * (conv_spec.h), in which every row attends to all of its keys. */
#include "model-server/encoder/family.h"
#include <stdlib.h>

/* Grids: the patches and at the end the features; the queries; what a step leaves to the next. */
enum { PATCHES, ROWS, A, B, C, D };

static struct conv_step product(uint8_t from, uint8_t to, uint32_t out, uint8_t weight,
                                uint16_t layer)
{
    struct conv_step c = conv_linear(from, to, out, weight);
    c.at[0] = layer;
    return c;
}

static void norm(struct conv_spec *s, uint8_t from, uint8_t to, uint8_t name, uint16_t layer)
{
    struct conv_step c = conv_norm(from, to, name);
    c.at[0] = layer;
    conv_add(s, c);
}

/* Learned rows to the grid ROWS, or `to`, with a norm. */
static void rows(struct conv_spec *s, uint8_t to, uint32_t n, uint32_t stored, uint32_t width,
                 uint8_t name, uint8_t norm)
{
    conv_add(s, (struct conv_step){.kind = CONV_ROWS,
                                   .from = to,
                                   .to = to,
                                   .act = ACT_N,
                                   .weight = name,
                                   .norm = norm,
                                   .out = width,
                                   .rows = n,
                                   .stored = stored});
}

/* ---------------------------------------------------------------- the Q-Former */

/* Names of tensors; K and V follow Q. */
enum {
    TABLE = 1,
    FIRST_NORM,
    SELF, /* and the next two */
    SELF_OUT = SELF + 3,
    SELF_NORM,
    CROSS_Q,
    CROSS_KV, /* and the next one */
    CROSS_OUT = CROSS_KV + 2,
    CROSS_NORM,
    MLP_IN,
    MLP_OUT,
    MLP_NORM,
    PROJECT
};
#define LAYER "qformer.encoder.layer.*."
static const char *const names_blip[] = {[0] = "",
                                         [TABLE] = "query_tokens",
                                         [FIRST_NORM] = "qformer.layernorm",
                                         [SELF] = LAYER "attention.attention.query",
                                         [SELF + 1] = LAYER "attention.attention.key",
                                         [SELF + 2] = LAYER "attention.attention.value",
                                         [SELF_OUT] = LAYER "attention.output.dense",
                                         [SELF_NORM] = LAYER "attention.output.LayerNorm",
                                         [CROSS_Q] = LAYER "crossattention.attention.query",
                                         [CROSS_KV] = LAYER "crossattention.attention.key",
                                         [CROSS_KV + 1] = LAYER "crossattention.attention.value",
                                         [CROSS_OUT] = LAYER "crossattention.output.dense",
                                         [CROSS_NORM] = LAYER "crossattention.output.LayerNorm",
                                         [MLP_IN] = LAYER "intermediate_query.dense",
                                         [MLP_OUT] = LAYER "output_query.dense",
                                         [MLP_NORM] = LAYER "output_query.LayerNorm",
                                         [PROJECT] = "language_projection",
                                         [PROJECT + 1] = NULL};

struct qformer {
    uint32_t hidden, layers, heads, mlp,
        every; /* every: layers from one cross-attention to the next */
    enum act act;
};

/* The product of what a sublayer computed is added to the queries, and a norm follows the sum. */
static void close_sum(struct conv_spec *s, uint8_t from, uint32_t width, uint8_t out, uint8_t after,
                      uint16_t layer)
{
    struct conv_step c = product(from, ROWS, width, out, layer);
    c.add = true;
    conv_add(s, c);
    norm(s, ROWS, ROWS, after, layer);
}

static void qformer_layer(struct conv_spec *s, const struct qformer *q, uint16_t layer)
{
    const uint32_t n = q->hidden, dim = n / q->heads;
    struct conv_step c = product(ROWS, A, 3 * n, SELF, layer);
    c.stacked = 3;
    conv_add(s, c);
    conv_add(s, conv_attend(A, A, B, q->heads, dim));
    close_sum(s, B, n, SELF_OUT, SELF_NORM, layer);
    if (layer % q->every == 0) {
        conv_add(s, product(ROWS, A, n, CROSS_Q, layer));
        c = product(PATCHES, C, 2 * n, CROSS_KV, layer);
        c.stacked = 2;
        conv_add(s, c);
        conv_add(s, conv_attend(A, C, B, q->heads, dim));
        close_sum(s, B, n, CROSS_OUT, CROSS_NORM, layer);
    }
    c = product(ROWS, A, q->mlp, MLP_IN, layer);
    c.act = q->act;
    conv_add(s, c);
    close_sum(s, A, n, MLP_OUT, MLP_NORM, layer);
}

/* Reads qformer_config, which is open. */
static struct qformer read_qformer(struct config *c, uint32_t width)
{
    struct qformer q = {.hidden = config_u32_or(c, "hidden_size", 768, 1, 1u << 16),
                        .layers = config_u32_or(c, "num_hidden_layers", 12, 1, 32),
                        .heads = config_u32_or(c, "num_attention_heads", 12, 1, 1u << 10),
                        .mlp = config_u32_or(c, "intermediate_size", 3072, 1, 1u << 20),
                        .every = config_u32_or(c, "cross_attention_frequency", 2, 1, 1u << 10),
                        .act = config_act(c, "hidden_act", "gelu")};
    config_only(c, "use_qformer_text_input", false);
    if (config_u32_or(c, "encoder_hidden_size", width, 1, 1u << 20) != width)
        config_fail(c, "`encoder_hidden_size` must be the tower's hidden_size");
    if (q.hidden % q.heads)
        config_fail(c, "`num_attention_heads` does not divide `hidden_size` of `qformer_config`");
    return q;
}

static void configure_blip(struct config *c, struct encoder_spec *s)
{
    static const cJSON none = {.type = cJSON_Object};
    const uint32_t width = config_u32_or(c, "hidden_size", 1408, 1, 1u << 16);
    const uint32_t side = family_square(c, "image_size", 224) / family_square(c, "patch_size", 14);
    const double n = json_num(c->file, "num_query_tokens", 32);
    cJSON *const tower = c->root;
    const cJSON *own = json_get(c->file, "qformer_config");
    if (!(n >= 1 && n <= 4096 && n == (uint32_t)n))
        config_fail(c, "`num_query_tokens` is out of bounds");
    c->root = (cJSON *)(uintptr_t)(cJSON_IsObject(own) ? own : &none);
    const struct qformer q = read_qformer(c, width);
    family_reads_rows(s, side * side + 1, width, family_text_width(c),
                      (float)config_num_or(c, "layer_norm_eps", 1e-12));
    c->root = tower;
    if (c->failed)
        return;
    s->conv.names = names_blip;
    rows(&s->conv, ROWS, (uint32_t)n, 0, q.hidden, TABLE, FIRST_NORM);
    for (uint16_t i = 0; i < q.layers; i++)
        qformer_layer(&s->conv, &q, i);
    conv_add(&s->conv, product(ROWS, PATCHES, s->width, PROJECT, 0));
}

/* EVA's tower (arXiv 2211.07636): all rows are kept, also the class token's. */
static void configure_eva(struct config *c, struct encoder_spec *s)
{
    family_blocks(c, s, &(struct block_keys){BLOCK_KEYS, "gelu", 1408, 39, 16, 6144, 1e-6, 14});
    s->width = s->blocks.hidden;
    s->blocks.qkv = QKV_STACKED;
    s->blocks.bias.qkv = config_bool_or(c, "qkv_bias", true);
    s->class_token = s->keeps_class = true;
    s->plain_positions = true;
    family_positions(c, s, POSITIONS_TABLE, family_square(c, "image_size", 224));
}

#define EVA(x) "vision_model.encoder.layers.*." x
static const struct encoder_family eva = {
    .names = {.names = {[W_PATCH] = "vision_model.embeddings.patch_embedding",
                        [W_PATCH_POSITIONS] = "vision_model.embeddings.position_embedding",
                        [W_CLASS_TOKEN] = "vision_model.embeddings.class_embedding",
                        [W_ATTN_NORM] = EVA("layer_norm1"),
                        [W_MLP_NORM] = EVA("layer_norm2"),
                        [W_QKV] = EVA("self_attn.qkv"),
                        [W_O] = EVA("self_attn.projection"),
                        [W_UP] = EVA("mlp.fc1"),
                        [W_DOWN] = EVA("mlp.fc2"),
                        [W_FINAL_NORM] = "vision_model.post_layernorm"}},
    .configure = configure_eva,
};
const struct encoder_family family_blip2 = {
    .types = (const char *const[]){"blip-2", NULL},
    .configure = configure_blip,
    .before = &eva,
};

/* ---------------------------------------------------------------- Aria */

enum { QUERIES = 1, KEY_NORM, QUERY_NORM, Q, K, V, INNER, INNER_OUT, OUT, OUT_NORM, UP, DOWN };
#define PROJECTOR "model.multi_modal_projector."
#define CROSS     PROJECTOR "cross_attn."
static const char *const names_aria[] = {[0] = "",
                                         [QUERIES] = PROJECTOR "query",
                                         [KEY_NORM] = CROSS "layer_norm_kv",
                                         [QUERY_NORM] = CROSS "layer_norm",
                                         [Q] = CROSS "q_proj",
                                         [K] = CROSS "k_proj",
                                         [V] = CROSS "v_proj",
                                         [INNER] = CROSS "multihead_attn.in_proj_",
                                         [INNER_OUT] = CROSS "multihead_attn.out_proj",
                                         [OUT] = CROSS "linear",
                                         [OUT_NORM] = PROJECTOR "layer_norm",
                                         [UP] = PROJECTOR "feed_forward.linear_in",
                                         [DOWN] = PROJECTOR "feed_forward.linear_out",
                                         [DOWN + 1] = NULL};

/* Part `nth` of queries, keys and values: a product, and another one of an attention's own. */
static void twice(struct conv_spec *s, uint8_t from, uint8_t to, uint32_t n, uint8_t name,
                  uint32_t nth)
{
    struct conv_step c = product(from, D, n, name, 0);
    c.bias = false;
    conv_add(s, c);
    c = product(D, to, n, INNER, 0);
    c.stored = 3 * n;
    c.first = nth * n;
    conv_add(s, c);
}

/* Queries for pictures of this many patches; `most`: rows of their table. */
static uint32_t queries_of(struct config *c, uint32_t patches, uint32_t *most)
{
    const cJSON *list = json_get(c->file, "projector_patch_to_query_dict"), *at;
    uint32_t found = !list && patches == 4900 ? 256 : !list && patches == 1225 ? 128 : 0;
    *most = list ? 0 : 256;
    if (list && !cJSON_IsObject(list)) {
        config_fail(c, "`projector_patch_to_query_dict` must be an object");
        return 1;
    }
    cJSON_ArrayForEach(at, list)
    {
        const double n = cJSON_IsNumber(at) ? at->valuedouble : 0;
        if (!(n >= 1 && n <= 1 << 14) || n != (uint32_t)n) {
            config_fail(c, "`projector_patch_to_query_dict` has a number out of bounds");
            return 1;
        }
        *most = n > *most ? (uint32_t)n : *most;
        if (strtoul(at->string, NULL, 10) == patches)
            found = (uint32_t)n;
    }
    if (!found)
        config_fail(c, "`projector_patch_to_query_dict` has no number for %u patches", patches);
    return found ? found : 1;
}

static void configure_aria(struct config *c, struct encoder_spec *s)
{
    const uint32_t n = config_u32_or(c, "hidden_size", 1152, 1, 1u << 16);
    const uint32_t heads = config_u32_or(c, "num_attention_heads", 16, 1, 1u << 10);
    const uint32_t side = family_square(c, "image_size", 224) / family_square(c, "patch_size", 32);
    uint32_t most;
    const uint32_t queries = queries_of(c, side * side, &most);
    family_reads_rows(s, side * side, n, family_text_width(c), 1e-5F);
    if (n % heads)
        config_fail(c, "`num_attention_heads` does not divide `hidden_size`");
    if (c->failed)
        return;
    struct conv_spec *const v = &s->conv;
    v->names = names_aria;
    norm(v, PATCHES, A, KEY_NORM, 0);
    twice(v, A, B, n, K, 1);
    twice(v, A, C, n, V, 2);
    conv_add(v, (struct conv_step){.kind = CONV_JOIN, .from = B, .with = C, .to = A, .act = ACT_N});
    rows(v, ROWS, queries, most, n, QUERIES, QUERY_NORM);
    twice(v, ROWS, B, n, Q, 0);
    conv_add(v, conv_attend(B, A, C, heads, n / heads));
    conv_add(v, product(C, A, n, INNER_OUT, 0));
    conv_add(v, product(A, B, n, OUT, 0));
    norm(v, B, A, OUT_NORM, 0);
    struct conv_step up = product(A, B, s->width, UP, 0),
                     down = product(B, PATCHES, s->width, DOWN, 0);
    up.bias = down.bias = false;
    up.act = ACT_GELU_TANH;
    conv_add(v, up);
    conv_add(v, down);
}

static void configure_aria_tower(struct config *c, struct encoder_spec *s)
{
    family_siglip_blocks(c, s, 1152, 12, 16, 3072);
    s->blocks.n_layers = family_layers_used(c, s->blocks.n_layers, "vision_feature_layer", -1);
    s->blocks.no_final_norm = true;
    s->width = s->blocks.hidden;
    family_positions(c, s, POSITIONS_BUCKETS, family_square(c, "image_size", 224));
}

static const struct encoder_family aria_tower = {
    .names = {.names = {NAMES_SIGLIP("model.vision_tower.", "model.vision_tower.vision_model.")},
              .prefix = "model."},
    .configure = configure_aria_tower,
};
const struct encoder_family family_aria = {
    .types = (const char *const[]){"aria", NULL},
    .names = {.prefix = "model."},
    .configure = configure_aria,
    .before = &aria_tower,
};
