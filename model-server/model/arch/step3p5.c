/* Step 3.5 Flash (StepFun, arXiv 2602.10604) and the text model of Step 3.7: Qwen 3's attention
 * with a per-head output gate; sliding windows in most layers, with more heads and their own RoPE;
 * norms that scale by 1 + w. Router: sigmoid scores and a selection bias; the last layers clamp
 * gate and up. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <stdlib.h>
#include <string.h>

/* Heads of layers with a window: a number, or in the repository's files an object. */
static void heads(struct config *c, struct decoder_spec *s)
{
    const cJSON *other = config_object(c, c->root, "attention_other_setting");
    const double usual = json_num(other, "num_attention_heads", s->n_heads);
    const uint32_t n = config_u32_or(c, "num_sliding_attention_heads",
                                     usual >= 1 && usual <= 65536 ? (uint32_t)usual : 0, 0, 65536);
    if (n == 0 || n % s->n_kv_heads)
        config_fail(c, "%u heads of layers with a window", n);
    if (json_num(other, "num_attention_groups", s->n_kv_heads) != s->n_kv_heads ||
        json_num(other, "head_dim", s->head_dim) != s->head_dim)
        config_fail(c, "`attention_other_setting`: only other heads of q are supported");
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].window)
            s->layers[i].n_heads = n;
}

/* The first layer with a window or without; n_layers: there is none. */
static uint32_t first_layer(const struct decoder_spec *s, bool window)
{
    uint32_t i = 0;
    while (i < s->n_layers && (s->layers[i].window != 0) != window)
        i++;
    return i;
}

/* How much of a head layer `i` rotates. */
static uint32_t rotated(struct config *c, const struct decoder_spec *s, uint32_t i, bool window)
{
    const cJSON *set = json_get(json_get(c->root, "rope_parameters"),
                                window ? "sliding_attention" : "full_attention");
    const double part = config_layer_num(c, s, "partial_rotary_factors", i, 1);
    return config_rotary_part(c, s->head_dim, json_num(set, "partial_rotary_factor", part));
}

/* The rotation `r` of layers with a window or without. */
static void rotation(struct config *c, struct decoder_spec *s, uint32_t r, bool window)
{
    const uint32_t i = first_layer(s, window);
    if (i == s->n_layers)
        return;
    const double theta = config_layer_num(c, s, "rope_theta", i, 0);
    if (theta != 0)
        s->rope[r].theta = theta;
    s->rope[r].dim = rotated(c, s, i, window);
}

static void rotations(struct config *c, struct decoder_spec *s)
{
    cJSON *list = cJSON_DetachItemFromObjectCaseSensitive(c->root, "rope_theta");
    const bool by_layer = cJSON_IsArray(list);
    if (list && !by_layer)
        cJSON_AddItemToObject(c->root, "rope_theta", list);
    const uint32_t full = first_layer(s, false);
    s->rope[0].dim = full < s->n_layers ? rotated(c, s, full, false) : s->head_dim;
    config_rope(c, s, 10000); /* lists of factors are as long as that */
    config_window_rope(c, s, by_layer ? 10000 : config_num_or(c, "rope_theta", 10000));
    if (by_layer)
        cJSON_AddItemToObject(c->root, "rope_theta", list);
    rotation(c, s, 0, false);
    rotation(c, s, 1, true);
}

/* Layers with experts: by mlp_layer_types, or numbers in a list or between commas. */
static void sparse(struct config *c, struct decoder_spec *s)
{
    const cJSON *list = json_get(c->root, "moe_layers_enum"), *j = NULL;
    config_mlp_layer_types(c, s, 3);
    if (json_get(c->root, "mlp_layer_types") || !list || cJSON_IsNull(list))
        return;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = false;
    for (j = cJSON_IsArray(list) ? list->child : NULL; j; j = j->next) {
        const double at = cJSON_IsNumber(j) ? j->valuedouble : -1;
        if (at >= 0 && at < s->n_layers)
            s->layers[(uint32_t)at].moe = true;
    }
    const char *p = cJSON_IsString(list) ? list->valuestring : "";
    for (char *end; *p; p = end + strcspn(end, ",") + (strchr(end, ',') != NULL)) {
        const unsigned long at = strtoul(p, &end, 10);
        if (end == p && *p != ',') {
            config_fail(c, "`moe_layers_enum` must be numbers between commas");
            return;
        }
        if (end != p && at < s->n_layers)
            s->layers[at].moe = true;
    }
}

static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    const char *count = config_either(c, "n_routed_experts", "num_local_experts");
    m->n_experts = config_u32_or(c, config_either(c, "moe_num_experts", count), 288, 1, 65536);
    m->top_k = config_u32_or(c, "num_experts_per_tok", 8, 1, 65536);
    m->ffn = config_u32_or(c, "moe_intermediate_size", 1280, 1, 1u << 22);
    m->shared_ffn = config_u32_or(c, "share_expert_dim", 1280, 1, 1u << 22);
    m->score = MOE_SIGMOID;
    m->select_bias = m->renormalise = true;
    m->scale = (float)config_num_or(c, "moe_router_scaling_factor", 1);
    m->layout = EXPERTS_LISTED;
    config_only_word(c, "moe_router_activation", "sigmoid");
    config_only(c, "use_moe_router_bias", true);
    config_only(c, "norm_expert_weight", true);
    config_check_moe(c, s);
    sparse(c, s);
    config_act_caps(c, s, "swiglu_limits", "swiglu_limits_shared");
}

/* Without the entries of draft layers. */
static void cut(struct config *c, const struct decoder_spec *s, const char *key)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(c->root, key);
    while (cJSON_IsArray(list) && (uint32_t)cJSON_GetArraySize(list) > s->n_layers)
        cJSON_DeleteItemFromArray(list, cJSON_GetArraySize(list) - 1);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){
                       .head_dim = 128, .max_positions = 128000, .norm_eps = 1e-5, .kv_heads = 8});
    config_only_word(c, "hidden_act", "silu");
    s->act = ACT_SILU;
    config_only(c, "attention_bias", false);
    config_only(c, "mlp_bias", false);
    config_only(c, "use_bidirectional_attention", false);
    config_only(c, "use_qk_norm", true);
    config_only(c, "use_head_wise_attn_gate", true);
    config_only(c, "zero_centered", true);
    s->norm.plus = 1;
    s->qk_norm = QK_NORM_HEAD;
    const cJSON *gate = json_get(c->root, "gating");
    if (gate && !cJSON_IsTrue(gate) && strcmp(json_str(c->root, "gating", ""), "per-head") != 0)
        config_fail(c, "`gating`: only one of each head is supported");
    s->attn_gate = ATTN_GATE_BY_HEAD;
    config_only(c, "sink", false);
    cut(c, s, "layer_types");
    cut(c, s, "mlp_layer_types");
    config_windows(c, s, 512, config_no_layer);
    heads(c, s);
    rotations(c, s);
    const double scale = config_num_or(c, "query_pre_attn_scalar", s->head_dim);
    if (!(scale > 0))
        config_fail(c, "`query_pre_attn_scalar` must be positive");
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = (float)(1 / sqrt(scale));
    experts(c, s);
}

static const struct config_key keys[] = {{"num_key_value_heads", "num_attention_groups", false},
                                         {"num_experts_per_tok", "moe_top_k", false},
                                         {"share_expert_dim", "share_expert_dims", false},
                                         {NULL, NULL, false}};

#define MOE "model.layers.*.moe."
const struct arch arch_step3p5 = {
    .types = (const char *const[]){"step3p5", NULL},
    .prefix = "model.",
    .names =
        {NAMES_LLAMA,
         NAMES_QK_NORM, [W_ATTN_GATE] = "model.layers.*.self_attn.g_proj", [W_ROUTER] = MOE "gate",
         /* in GGUF files each matrix is there alone */
         [W_SELECT_BIAS] = MOE "router_bias",
         [W_MOE_GATE] = MOE "gate_proj.weight|" MOE "experts.*.gate_proj",
         [W_MOE_UP] = MOE "up_proj.weight|" MOE "experts.*.up_proj",
         [W_MOE_DOWN] = MOE "down_proj.weight|" MOE "experts.*.down_proj",
         [W_SHARED_GATE] = "model.layers.*.share_expert.gate_proj",
         [W_SHARED_UP] = "model.layers.*.share_expert.up_proj",
         [W_SHARED_DOWN] = "model.layers.*.share_expert.down_proj"},
    .keys = keys,
    .configure = configure,
};
