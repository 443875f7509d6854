/* One row per architecture of llama.cpp. Keys are defined in its gguf-py/gguf/constants.py; their
 * meaning is the inverse of convert_hf_to_gguf.py. */
#include "common/gguf/families.h"
#include "common/buf.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

void gguf_window(const struct gguf_meta *m)
{
    double v;
    if (meta_number(m, "attention.sliding_window", &v) && v > 0)
        meta_put(m, "sliding_window", v);
    else
        cJSON_AddNullToObject(m->config, "sliding_window");
}

void gguf_qkv_bias(const struct gguf_meta *m)
{
    cJSON_AddBoolToObject(m->config, "attention_bias", meta_has(m, "blk.0.attn_q.bias"));
    cJSON_AddBoolToObject(m->config, "mlp_bias", meta_has(m, "blk.0.ffn_up.bias"));
}

void gguf_experts(const struct gguf_meta *m)
{
    double v;
    char key[GGUF_KEY_MAX];
    meta_put(m, "num_local_experts", meta_number_or(m, "expert_count", 0));
    if (meta_number(m, "expert_used_count", &v))
        meta_put(m, "num_experts_per_tok", v);
    if (meta_number(m, "expert_feed_forward_length", &v)) {
        meta_put(m, "moe_intermediate_size", v);
        if (!cJSON_GetObjectItemCaseSensitive(m->config, "intermediate_size"))
            meta_put(m, "intermediate_size", v);
    }
    cJSON_AddBoolToObject(m->config, "norm_topk_prob",
                          meta_bool_or(m, "expert_weights_norm", true));
    cJSON_AddNullToObject(m->config, "sliding_window");
    cJSON *dense = cJSON_AddArrayToObject(m->config, "mlp_only_layers");
    for (int i = 0; i < meta_number_or(m, "block_count", 0) && i < GGUF_LAYERS_MAX; i++) {
        snprintf(key, sizeof(key), "blk.%d.ffn_gate_inp.weight", i);
        if (!meta_has(m, key))
            cJSON_AddItemToArray(dense, cJSON_CreateNumber(i));
    }
}

void gguf_kinds(const struct gguf_meta *m, const char *key, const char *part, const char *with,
                const char *without)
{
    char name[GGUF_KEY_MAX];
    cJSON *list = cJSON_AddArrayToObject(m->config, key);
    for (int i = 0; i < meta_layers(m) && i < GGUF_LAYERS_MAX; i++) {
        snprintf(name, sizeof(name), "blk.%d.%s", i, part);
        cJSON_AddItemToArray(list, cJSON_CreateString(meta_has(m, name) ? with : without));
    }
}

static void llama(const struct gguf_meta *m)
{
    gguf_qkv_bias(m);
    if (meta_number_or(m, "expert_count", 0) > 0)
        gguf_experts(m);
}

void gguf_granite(const struct gguf_meta *m)
{
    static const char *const keys[][2] = {{"embedding_scale", "embedding_multiplier"},
                                          {"residual_scale", "residual_multiplier"},
                                          {"attention.scale", "attention_multiplier"},
                                          {"logit_scale", "logits_scaling"}};
    double v;
    gguf_qkv_bias(m);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (meta_number(m, keys[i][0], &v))
            meta_put(m, keys[i][1], v);
}

static void cohere(const struct gguf_meta *m)
{
    double v;
    gguf_qkv_bias(m);
    if (meta_number(m, "logit_scale", &v))
        meta_put(m, "logit_scale", v);
    cJSON_AddBoolToObject(m->config, "use_qk_norm", meta_has(m, "blk.0.attn_q_norm.weight"));
}

static void starcoder2(const struct gguf_meta *m)
{
    cJSON_AddBoolToObject(m->config, "use_bias", meta_has(m, "blk.0.attn_q.bias"));
    gguf_window(m);
}

static void stablelm(const struct gguf_meta *m)
{
    cJSON_AddBoolToObject(m->config, "use_qkv_bias", meta_has(m, "blk.0.attn_q.bias"));
    cJSON_AddBoolToObject(m->config, "qk_layernorm", meta_has(m, "blk.0.attn_q_norm.weight"));
    cJSON_AddBoolToObject(
        m->config, "use_parallel_residual",
        meta_bool_or(m, "use_parallel_residual", !meta_has(m, "blk.0.ffn_norm.weight")));
}

/* The file does not contain the scale of q.k. It is the root of the head size, except for the
 * largest models, which llama.cpp too recognises by their layers. */
static void attn_scale(const struct gguf_meta *m, double layers_of_27b)
{
    double heads = meta_number_or(m, "attention.head_count", 1);
    double hidden = meta_number_or(m, "embedding_length", 0);
    meta_put(m, "query_pre_attn_scalar",
             meta_number_or(m, "block_count", 0) == layers_of_27b
                 ? hidden / heads
                 : meta_number_or(m, "attention.key_length", hidden / heads));
}

void gguf_caps(const struct gguf_meta *m)
{
    static const char *const keys[][2] = {{"attn_logit_softcapping", "attn_logit_softcapping"},
                                          {"final_logit_softcapping", "final_logit_softcapping"}};
    double v;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (meta_number(m, keys[i][0], &v) && v > 0)
            meta_put(m, keys[i][1], v);
        else
            cJSON_AddNullToObject(m->config, keys[i][1]);
}

static void gemma2(const struct gguf_meta *m)
{
    gguf_window(m);
    gguf_caps(m);
    attn_scale(m, 46);
}

/* Full attention in every n-th layer; or a boolean per layer: true if it has the window. */
void gguf_pattern(const struct gguf_meta *m)
{
    const struct gguf_value *list = meta_numbers(m, "attention.sliding_window_pattern");
    if (!list) {
        meta_put(m, "sliding_window_pattern",
                 meta_number_or(m, "attention.sliding_window_pattern", 6));
        return;
    }
    cJSON *types = cJSON_AddArrayToObject(m->config, "layer_types");
    for (uint64_t i = 0; i < list->n && i < GGUF_LAYERS_MAX; i++)
        cJSON_AddItemToArray(types,
                             cJSON_CreateString(gguf_number_at(list, i) != 0 ? "sliding_attention"
                                                                             : "full_attention"));
}

static void gemma3(const struct gguf_meta *m)
{
    gguf_window(m);
    gguf_caps(m);
    attn_scale(m, 62);
    gguf_pattern(m);
    meta_put(m, "rope_local_base_freq", meta_number_or(m, "rope.freq_base_swa", 10000));
}

static void cohere2(const struct gguf_meta *m)
{
    double v;
    gguf_qkv_bias(m);
    if (meta_number(m, "logit_scale", &v))
        meta_put(m, "logit_scale", v);
    gguf_window(m);
}

/* OLMo 3 has a window, OLMo 2 has none. */
static void olmo2(const struct gguf_meta *m)
{
    double v;
    if (meta_number(m, "attention.sliding_window", &v) && v > 0) {
        meta_put(m, "sliding_window", v);
        gguf_pattern(m);
    }
}

/* Without a word half of a head rotates. */
static void glm4(const struct gguf_meta *m)
{
    if (meta_number_or(m, "rope.dimension_count", 0) == gguf_head_size(m->s, m->f))
        meta_put(m, "partial_rotary_factor", 1);
    cJSON_AddBoolToObject(m->config, "attention_bias", meta_has(m, "blk.0.attn_q.bias"));
}

static void qwen2moe(const struct gguf_meta *m)
{
    double v;
    gguf_experts(m);
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, "norm_topk_prob");
    cJSON_AddBoolToObject(m->config, "norm_topk_prob",
                          meta_bool_or(m, "expert_weights_norm", false));
    cJSON_AddBoolToObject(m->config, "qkv_bias", meta_has(m, "blk.0.attn_q.bias"));
    if (meta_number(m, "expert_shared_feed_forward_length", &v))
        meta_put(m, "shared_expert_intermediate_size", v);
}

/* Mixture-of-experts settings of DeepSeek's family. */
void gguf_deepseek_experts(const struct gguf_meta *m)
{
    static const char *const keys[][2] = {{"expert_count", "n_routed_experts"},
                                          {"expert_used_count", "num_experts_per_tok"},
                                          {"expert_feed_forward_length", "moe_intermediate_size"},
                                          {"expert_shared_count", "n_shared_experts"},
                                          {"expert_weights_scale", "routed_scaling_factor"},
                                          {"leading_dense_block_count", "first_k_dense_replace"},
                                          {"expert_group_count", "n_group"},
                                          {"expert_group_used_count", "topk_group"}};
    double v;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (meta_number(m, keys[i][0], &v))
            meta_put(m, keys[i][1], v);
    cJSON_AddBoolToObject(m->config, "norm_topk_prob",
                          meta_bool_or(m, "expert_weights_norm", true));
}

/* llama.cpp rounds the bounds of the interpolation, as in training. config.json of the released
 * models disables the rounding. */
static void gpt_oss(const struct gguf_meta *m)
{
    cJSON *scaling = cJSON_GetObjectItemCaseSensitive(m->config, "rope_scaling");
    if (scaling)
        cJSON_AddBoolToObject(scaling, "truncate", false);
    gguf_window(m);
    meta_copy(m, "expert_count", "num_local_experts");
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    meta_set(m, "intermediate_size",
             meta_number_or(m, "expert_feed_forward_length",
                            meta_number_or(m, "feed_forward_length", 0)));
    cJSON_AddBoolToObject(m->config, "attention_bias", meta_has(m, "blk.0.attn_q.bias"));
}

/* q grows with the logarithm of the position; both factors of the stretched rotation are equal. */
static void mistral3(const struct gguf_meta *m)
{
    cJSON *scaling = cJSON_GetObjectItemCaseSensitive(m->config, "rope_scaling");
    double v;
    if (scaling && meta_number(m, "attention.temperature_scale", &v))
        meta_put_in(scaling, "llama_4_scaling_beta", v);
    if (scaling && meta_number(m, "rope.scaling.yarn_log_multiplier", &v)) {
        meta_put_in(scaling, "mscale", v);
        meta_put_in(scaling, "mscale_all_dim", v);
    }
    cJSON_AddNullToObject(m->config, "sliding_window");
}

static void dots1(const struct gguf_meta *m)
{
    gguf_deepseek_experts(m);
    gguf_qkv_bias(m);
}

static void glm4moe(const struct gguf_meta *m)
{
    glm4(m);
    gguf_deepseek_experts(m);
    cJSON_AddBoolToObject(m->config, "use_qk_norm", meta_has(m, "blk.0.attn_q_norm.weight"));
}

static void ernie4_5(const struct gguf_meta *m)
{
    cJSON_AddBoolToObject(m->config, "use_bias", meta_has(m, "blk.0.attn_q.bias"));
}

/* Layers without keys and values are convolutions. */
static void lfm2(const struct gguf_meta *m)
{
    const struct gguf_value *list = meta_numbers(m, "attention.head_count_kv");
    cJSON *full_layers = cJSON_AddArrayToObject(m->config, "full_attn_idxs");
    for (uint64_t i = 0; list && i < list->n && i < GGUF_LAYERS_MAX; i++)
        if (gguf_number_at(list, i) > 0)
            cJSON_AddItemToArray(full_layers, cJSON_CreateNumber((double)i));
    meta_put(m, "norm_eps", meta_number_or(m, "attention.layer_norm_rms_epsilon", 1e-5));
    meta_put(m, "conv_L_cache", meta_number_or(m, "shortconv.l_cache", 3));
    cJSON_AddBoolToObject(m->config, "block_auto_adjust_ff_dim", false);
    cJSON_AddBoolToObject(m->config, "conv_bias", meta_has(m, "blk.0.shortconv.in_proj.bias"));
}

static void exaone4(const struct gguf_meta *m)
{
    gguf_window(m);
    if (meta_numbers(m, "attention.sliding_window_pattern"))
        gguf_pattern(m);
    else
        meta_put(m, "sliding_window_pattern",
                 meta_number_or(m, "attention.sliding_window_pattern", 4));
}

static void olmoe(const struct gguf_meta *m)
{
    gguf_experts(m);
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, "norm_topk_prob");
    cJSON_AddBoolToObject(m->config, "norm_topk_prob", false);
}

static void olmo(const struct gguf_meta *m)
{
    double v;
    if (meta_number(m, "attention.clamp_kqv", &v) && v > 0)
        meta_put(m, "clip_qkv", v);
}

static void layer_norms(const struct gguf_meta *m)
{
    double v;
    gguf_qkv_bias(m);
    if (meta_number(m, "attention.layer_norm_epsilon", &v))
        meta_put(m, "norm_eps", v);
}

static void orion(const struct gguf_meta *m)
{
    double v;
    gguf_qkv_bias(m);
    if (meta_number(m, "attention.layer_norm_epsilon", &v))
        meta_set(m, "rms_norm_eps", v);
}

static void maincoder(const struct gguf_meta *m)
{
    meta_copy(m, "feed_forward_length", "intermediate_size_mlp");
}

/* Granite with MiniCPM's multipliers; the scale of q.k is the usual one. */
static void minicpm(const struct gguf_meta *m)
{
    const double dim = gguf_head_size(m->s, m->f);
    gguf_granite(m);
    if (dim > 0)
        meta_put(m, "attention_multiplier", 1 / sqrt(dim));
}

static void ernie4_5_moe(const struct gguf_meta *m)
{
    ernie4_5(m);
    meta_copy(m, "expert_count", "moe_num_experts");
    meta_copy(m, "expert_used_count", "moe_k");
    meta_copy(m, "expert_feed_forward_length", "moe_intermediate_size");
    meta_copy(m, "interleave_moe_layer_step", "moe_layer_interval");
    meta_put(m, "moe_num_shared_experts", meta_number_or(m, "expert_shared_count", 0));
    meta_put(m, "moe_layer_start_index", meta_number_or(m, "leading_dense_block_count", 0));
}

static void lfm2moe(const struct gguf_meta *m)
{
    lfm2(m);
    meta_copy(m, "expert_count", "num_experts");
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    meta_copy(m, "expert_feed_forward_length", "moe_intermediate_size");
    meta_put(m, "num_dense_layers", meta_number_or(m, "leading_dense_block_count", 0));
    cJSON_AddBoolToObject(m->config, "norm_topk_prob", true);
    char name[GGUF_KEY_MAX];
    snprintf(name, sizeof(name), "blk.%.0f.exp_probs_b.bias", meta_layers(m) - 1);
    cJSON_AddBoolToObject(m->config, "use_expert_bias", meta_has(m, name));
}

static void minimax_m2(const struct gguf_meta *m)
{
    meta_copy(m, "expert_count", "num_local_experts");
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    meta_set(m, "intermediate_size",
             meta_number_or(m, "expert_feed_forward_length",
                            meta_number_or(m, "feed_forward_length", 0)));
    meta_copy(m, "rope.dimension_count", "rotary_dim");
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, "partial_rotary_factor");
    cJSON_AddBoolToObject(m->config, "use_qk_norm", meta_has(m, "blk.0.attn_q_norm.weight"));
    cJSON_AddBoolToObject(m->config, "use_routing_bias", meta_has(m, "blk.0.exp_probs_b.bias"));
}

/* The rotation base already includes the family's alpha. */
static void hunyuan(const struct gguf_meta *m)
{
    gguf_qkv_bias(m);
    cJSON_AddBoolToObject(m->config, "use_qk_norm", meta_has(m, "blk.0.attn_q_norm.weight"));
}

/* The text model of Hunyuan OCR: alpha is in the file. */
static void hunyuan_vl(const struct gguf_meta *m)
{
    const double alpha = meta_number_or(m, "rope.scaling.alpha", 0);
    const double dim = gguf_head_size(m->s, m->f);
    hunyuan(m);
    if (alpha > 0 && dim > 2)
        meta_set(m, "rope_theta",
                 meta_number_or(m, "rope.freq_base", 10000) * pow(alpha, dim / (dim - 2)));
}

static void granitemoe(const struct gguf_meta *m)
{
    gguf_granite(m);
    meta_copy(m, "expert_count", "num_local_experts");
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    meta_put(m, "shared_intermediate_size",
             meta_number_or(m, "expert_shared_feed_forward_length", 0));
}

#define PLAMO_PLUS                                                                                 \
    {                                                                                              \
        1 / 5.0F, 0.0894427191F                                                                    \
    } /* 1 / 5 and 5^-1.5 */

static const struct gguf_family families[] = {
    {"llama", "llama", "mixtral", true, 0, llama},
    {"qwen2", "qwen2", NULL, false, 0, NULL},
    {"qwen3", "qwen3", NULL, false, 0, gguf_qkv_bias},
    {"qwen3moe", "qwen3_moe", "qwen3_moe", false, 0, gguf_experts},
    /* the text model; the vision tower is in a separate file */
    {"qwen2vl", "qwen2", NULL, false, 0, NULL},
    {"qwen3vl", "qwen3", NULL, false, 0, gguf_qkv_bias},
    {"qwen3vlmoe", "qwen3_moe", "qwen3_moe", false, 0, gguf_experts},
    {"gemma", "gemma", NULL, false, 1, NULL},
    {"gemma2", "gemma2", NULL, false, 1, gemma2},
    {"gemma3", "gemma3_text", NULL, false, 1, gemma3},
    {"phi3", "phi3", NULL, false, 0, gguf_window},
    {"granite", "granite", NULL, true, 0, gguf_granite},
    {"command-r", "cohere", NULL, false, 0, cohere},
    {"cohere2", "cohere2", NULL, false, 0, cohere2},
    {"olmo2", "olmo2", NULL, false, 0, olmo2},
    {"glm4", "glm4", NULL, false, 0, glm4, .axes_halved = true},
    {"glm4moe", NULL, "glm4_moe", false, 0, glm4moe},
    {"smollm3", "smollm3", NULL, true, 0, gguf_qkv_bias},
    {"qwen2moe", NULL, "qwen2_moe", false, 0, qwen2moe},
    {"ernie4_5", "ernie4_5", NULL, false, 0, ernie4_5},
    {"paddleocr", "paddleocr_vl_text", NULL, false, 0, ernie4_5},
    {"lfm2", "lfm2", NULL, false, 0, lfm2},
    {"starcoder2", "starcoder2", NULL, false, 0, starcoder2},
    {"stablelm", "stablelm", NULL, false, 0, stablelm},
    {"exaone", "llama", NULL, false, 0, gguf_qkv_bias},
    {"exaone4", "exaone4", NULL, false, 0, exaone4},
    {"internlm2", "llama", NULL, true, 0, gguf_qkv_bias},
    {"minicpm", "granite", NULL, true, 0, minicpm},
    {"xverse", "xverse", NULL, true, 0, gguf_qkv_bias},
    {"orion", "orion", NULL, false, 0, orion},
    {"pangu-embedded", "llama", NULL, false, 0, gguf_qkv_bias},
    {"maincoder", "maincoder", NULL, false, 0, maincoder},
    {"arcee", "arcee", NULL, true, 0, gguf_qkv_bias},
    {"nemotron", "nemotron", NULL, false, 1, layer_norms},
    {"jais2", "jais2", NULL, false, 0, layer_norms},
    {"seed_oss", "seed_oss", NULL, false, 0, gguf_qkv_bias},
    {"olmo", "olmo", NULL, true, 0, olmo},
    {"olmoe", NULL, "olmoe", false, 0, olmoe},
    {"granitemoe", NULL, "granitemoe", true, 0, granitemoe},
    {"hunyuan-dense", "hunyuan_v1_dense", NULL, false, 0, hunyuan},
    {"hunyuan_vl", "hunyuan_v1_dense", NULL, false, 0, hunyuan_vl},
    {"ernie4_5-moe", NULL, "ernie4_5_moe", false, 0, ernie4_5_moe},
    {"lfm2moe", NULL, "lfm2_moe", false, 0, lfm2moe},
    {"minimax-m2", NULL, "minimax_m2", false, 0, minimax_m2},
    {"minimax-m3", NULL, "minimax_m3_vl_text", false, 1, gguf_minimax_m3},
    {"deepseek", NULL, "deepseek", true, 0, gguf_deepseek_moe},
    {"deepseek2-ocr", NULL, "deepseek", false, 0, gguf_deepseek_ocr},
    {"deepseek2", NULL, "deepseek_v3", false, 0, gguf_deepseek2, .latent = true},
    {"deepseek4", NULL, "deepseek_v4", false, 0, gguf_deepseek4},
    {"hy_v4", NULL, "hy_v4_vl_text", false, 0, gguf_hy_v4, .latent = true},
    {"glm5-next", NULL, "glm5_next_text", false, 0, gguf_glm5_next, .latent = true},
    {"hrm_text", "hrm_text", NULL, false, 0, gguf_hrm_text},
    {"deepseek32", NULL, "deepseek_v32", false, 0, gguf_deepseek32, .latent = true},
    {"glm-dsa", NULL, "glm_moe_dsa", false, 0, gguf_glm_dsa, .latent = true},
    {"gpt-oss", NULL, "gpt_oss", false, 0, gpt_oss},
    {"dots1", NULL, "dots1", false, 0, dots1},
    {"qwen35", "qwen3_5_text", NULL, false, 1, gguf_qwen35, .tiled = true},
    {"qwen35moe", NULL, "qwen3_5_moe_text", false, 1, gguf_qwen35, .tiled = true},
    {"qwen3next", NULL, "qwen3_5_moe_text", false, 1, gguf_qwen35, .beta_with_decay = true},
    {"gemma3n", "gemma3n_text", NULL, false, 0, gguf_gemma3n, .by_layer = true},
    {"gemma4", "gemma4_text", "gemma4_text", false, 0, gguf_gemma4, .by_layer = true,
     .own_positions = true},
    {"llama4", NULL, "llama4_text", false, 0, gguf_llama4},
    {"granitehybrid", "granitemoehybrid", "granitemoehybrid", true, 0, gguf_granite_hybrid},
    {"nemotron_h", "nemotron_h", NULL, false, 0, gguf_nemotron_h},
    {"nemotron_h_moe", NULL, "nemotron_h", false, 0, gguf_nemotron_h},
    {"falcon-h1", "falcon_h1", NULL, false, 0, gguf_falcon_h1},
    {"mamba2", "mamba2", NULL, false, 0, gguf_mamba2},
    {"rwkv7", "rwkv7", NULL, false, 0, gguf_rwkv7, .own_positions = true},
    {"gpt2", "gpt_bigcode", NULL, false, 0, gguf_gpt2, .stacked = true},
    {"starcoder", "gpt_bigcode", NULL, false, 0, gguf_starcoder},
    {"gptneox", "gpt_neox", NULL, false, 0, gguf_gptneox, .stacked = true},
    {"falcon", "falcon", NULL, false, 0, gguf_falcon, .stacked = true},
    {"bloom", "bloom", NULL, false, 0, NULL, .stacked = true},
    {"mpt", "mpt", NULL, false, 0, gguf_mpt},
    {"phi2", "phi", NULL, false, 0, gguf_phi2},
    {"phimoe", NULL, "phimoe", false, 0, gguf_phimoe},
    {"chatglm", "chatglm", NULL, false, 0, gguf_chatglm},
    {"mistral3", "ministral3", NULL, true, 0, mistral3},
    {"mistral4", NULL, "mistral4", false, 0, gguf_mistral4, .latent = true},
    {"minicpm3", "minicpm3", NULL, false, 0, gguf_minicpm3, .latent = true},
    {"hunyuan-moe", NULL, "hunyuan_v1_moe", false, 0, gguf_hunyuan_moe},
    {"bailingmoe2", NULL, "bailing_moe_v2", false, 0, gguf_bailing2},
    {"exaone-moe", NULL, "exaone_moe", false, 0, gguf_exaone_moe},
    {"hy_v3", NULL, "hy_v3", false, 0, gguf_hy_v3},
    {"apertus", "apertus", NULL, false, 0, gguf_qkv_bias},
    {"kimi-linear", NULL, "kimi_linear", false, 0, gguf_kimi_linear, .latent = true},
    {"kimi-k3", NULL, "kimi_linear", false, 0, gguf_kimi_k3, .latent = true},
    {"bailingmoe3", NULL, "bailing_hybrid", false, 0, gguf_bailing3, .latent = true,
     .rates_above_0 = true},
    {"afmoe", NULL, "afmoe", false, 0, gguf_afmoe},
    {"mellum", NULL, "mellum", false, 0, gguf_mellum},
    {"laguna", NULL, "laguna", false, 0, gguf_laguna, .by_layer = true},
    {"mimo2", NULL, "mimo_v2_flash", false, 0, gguf_mimo2, .by_layer = true, .own_values = true},
    {"minimax-01", NULL, "minimax_text_01", false, 0, gguf_minimax_01},
    {"step35", NULL, "step3p5", false, 1, gguf_step35, .by_layer = true},
    {"muse-glimmer", "muse_glimmer_text", NULL, true, 1, gguf_muse_glimmer, .plain_end = true},
    {"nanbeige", "nanbeige", NULL, true, 0, gguf_nanbeige},
    {"spark2_5", "spark2_5", NULL, false, 0, gguf_spark2_5},
    {"smallthinker", NULL, "smallthinker", false, 0, gguf_smallthinker},
    {"cohere2moe", NULL, "cohere2_moe", false, 0, gguf_cohere2_moe},
    {"granite_swa", "granite_swa", "granitemoe_swa", true, 0, gguf_granite_swa},
    {"bailingmoe", NULL, "bailing_moe", true, 0, gguf_bailing},
    {"qwen", "qwen", NULL, false, 0, gguf_qwen},
    {"baichuan", "baichuan", NULL, true, 0, gguf_baichuan},
    {"dbrx", NULL, "dbrx", false, 0, gguf_dbrx},
    {"deci", "nemotron-nas", NULL, true, 0, gguf_deci, .by_layer = true},
    {"openelm", "openelm", NULL, false, 0, gguf_openelm, .by_layer = true},
    {"jais", "jais", NULL, false, 0, gguf_jais},
    {"codeshell", "codeshell", NULL, false, 0, gguf_codeshell},
    {"bitnet", "bitnet", NULL, false, 0, gguf_bitnet},
    {"mamba", "mamba", NULL, false, 0, gguf_mamba},
    {"jamba", "jamba", "jamba", false, 0, gguf_jamba, .by_layer = true},
    {"plm", "plm", NULL, false, 0, gguf_plm, .latent = true},
    {"maple", NULL, "maple", false, 0, gguf_maple},
    {"plamo2", "plamo2", NULL, false, 1, gguf_plamo2, .post_plus = PLAMO_PLUS, .plain_heads = true},
    {"plamo3", "plamo3", NULL, false, 1, gguf_plamo3, .post_plus = PLAMO_PLUS,
     .own_positions = true},
    {"bert", "bert", NULL, false, 0, gguf_bert, .both_ways = true},
    {"jina-bert-v2", "bert", NULL, false, 0, gguf_jina_bert, .both_ways = true},
    {"jina-bert-v3", "xlm-roberta", NULL, false, 0, gguf_jina_bert_v3, .both_ways = true},
    {"neo-bert", "neobert", NULL, false, 0, gguf_neo_bert, .both_ways = true},
    {"nomic-bert", "nomic_bert", NULL, false, 0, gguf_nomic_bert, .both_ways = true},
    {"nomic-bert-moe", NULL, "nomic_bert", false, 0, gguf_nomic_bert_moe, .both_ways = true},
    {"modern-bert", "modernbert", NULL, false, 0, gguf_modern_bert, .both_ways = true},
    {"eurobert", "eurobert", NULL, false, 0, gguf_qkv_bias, .both_ways = true},
    {"llama-embed", "eurobert", NULL, true, 0, gguf_qkv_bias, .both_ways = true},
    {"t5", "t5", NULL, false, 0, gguf_t5, .both_ways = true, .pair = true},
    {"t5encoder", "t5", NULL, false, 0, gguf_t5, .both_ways = true},
    {"gemma-embedding", "gemma3_text", NULL, false, 1, gguf_gemma_embedding, .both_ways = true},
};
enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

const struct gguf_family *gguf_family(const struct gguf_set *s, struct err *e)
{
    struct gguf_str name;
    struct buf known = BUF_INIT;
    if (!gguf_text(&s->files[0], "general.architecture", &name)) {
        err_set(e, ERR_VALIDATION, "%s: `general.architecture` is missing", s->files[0].path);
        return NULL;
    }
    for (int i = 0; i < N_FAMILIES; i++)
        if (strlen(families[i].name) == name.n && memcmp(families[i].name, name.p, name.n) == 0)
            return &families[i];
    for (int i = 0; i < N_FAMILIES; i++)
        buf_fmt(&known, "%s%s", i ? ", " : "", families[i].name);
    err_set(e, ERR_VALIDATION, "%s: architecture `%.*s` is not read from GGUF (known: %s)",
            s->files[0].path, name.n > 64 ? 64 : (int)name.n, name.p, known.p ? known.p : "");
    buf_free(&known);
    return NULL;
}
