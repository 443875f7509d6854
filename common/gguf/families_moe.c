/* Mixtures of experts: routers of DeepSeek's kind in models of other makers, and layers with
 * windows that rotate otherwise. */
#include "common/gguf/families.h"
#include <string.h>

/* The base of the rotation includes its alpha. */
void gguf_hunyuan_moe(const struct gguf_meta *m)
{
    gguf_qkv_bias(m);
    cJSON_AddBoolToObject(m->config, "use_qk_norm", meta_has(m, "blk.0.attn_q_norm.weight"));
    meta_copy(m, "expert_count", "num_experts");
    meta_copy(m, "expert_used_count", "moe_topk");
    meta_copy(m, "expert_feed_forward_length", "moe_intermediate_size");
    meta_put(m, "num_shared_expert", meta_number_or(m, "expert_shared_count", 1));
}

void gguf_bailing2(const struct gguf_meta *m)
{
    const double shared = meta_number_or(m, "expert_shared_count", 0);
    const double width = meta_number_or(m, "expert_shared_feed_forward_length", 0);
    gguf_deepseek_experts(m);
    cJSON_AddStringToObject(m->config, "score_function",
                            meta_number_or(m, "expert_gating_func", 1) == 2 ? "sigmoid"
                                                                            : "softmax");
    cJSON_AddBoolToObject(m->config, "use_qk_norm", meta_has(m, "blk.0.attn_q_norm.weight"));
    cJSON_AddBoolToObject(m->config, "use_qkv_bias", meta_has(m, "blk.0.attn_qkv.bias"));
    if (shared > 0 && width > 0)
        meta_put(m, "moe_shared_expert_intermediate_size", width / shared);
}

void gguf_exaone_moe(const struct gguf_meta *m)
{
    gguf_window(m);
    if (meta_numbers(m, "attention.sliding_window_pattern"))
        gguf_pattern(m);
    gguf_deepseek_experts(m);
}

/* Embeddings are multiplied by the root of their width, as in llama.cpp. */
void gguf_afmoe(const struct gguf_meta *m)
{
    gguf_qkv_bias(m);
    gguf_window(m);
    gguf_deepseek_experts(m);
    meta_copy(m, "leading_dense_block_count", "num_dense_layers");
    meta_copy(m, "expert_weights_scale", "route_scale");
    cJSON_AddBoolToObject(m->config, "mup_enabled", true);
}

void gguf_hy_v3(const struct gguf_meta *m)
{
    gguf_qkv_bias(m);
    gguf_deepseek_experts(m);
    meta_put(m, "num_shared_experts", meta_number_or(m, "expert_shared_count", 1));
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, "n_shared_experts");
    meta_copy(m, "expert_weights_scale", "router_scaling_factor");
    gguf_kinds(m, "mlp_layer_types", "ffn_gate_inp.weight", "sparse", "dense");
}

/* ---------------------------------------------------------------- windows with a rotation of their
 * own */

/* Layers with a window rotate by another base, without the scaling, and maybe in another part. */
static void two_rotations(const struct gguf_meta *m)
{
    const double head = gguf_head_size(m->s, m->f);
    const double dim = meta_number_or(m, "rope.dimension_count", head);
    cJSON *all = cJSON_AddObjectToObject(m->config, "rope_parameters");
    cJSON *full = cJSON_DetachItemFromObjectCaseSensitive(m->config, "rope_scaling");
    if (!full) {
        full = cJSON_CreateObject();
        cJSON_AddStringToObject(full, "rope_type", "default");
    }
    cJSON_AddItemToObject(all, "full_attention", full);
    meta_put_in(full, "rope_theta", meta_number_or(m, "rope.freq_base", 10000));
    cJSON *window = cJSON_AddObjectToObject(all, "sliding_attention");
    cJSON_AddStringToObject(window, "rope_type", "default");
    meta_put_in(
        window, "rope_theta",
        meta_number_or(m, "rope.freq_base_swa", meta_number_or(m, "rope.freq_base", 10000)));
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, "partial_rotary_factor");
    if (!(head > 0))
        return;
    meta_put_in(full, "partial_rotary_factor", meta_part(dim, head));
    meta_put_in(window, "partial_rotary_factor",
                meta_part(meta_number_or(m, "rope.dimension_count_swa", dim), head));
}

/* The element of a list, or the number of all layers, at the first layer that has a window, or at
 * the first one that has none. */
static double of_kind(const struct gguf_meta *m, const char *key, bool window)
{
    const struct gguf_value *list = meta_numbers(m, key);
    const struct gguf_value *slides = meta_numbers(m, "attention.sliding_window_pattern");
    for (uint64_t i = 0; list && slides && i < list->n && i < slides->n; i++)
        if ((gguf_number_at(slides, i) != 0) == window)
            return gguf_number_at(list, i);
    return list ? 0 : meta_number_or(m, key, 0);
}

void gguf_mellum(const struct gguf_meta *m)
{
    gguf_experts(m);
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, "sliding_window");
    gguf_window(m);
    gguf_pattern(m);
    gguf_kinds(m, "mlp_layer_types", "ffn_gate_inp.weight", "sparse", "dense");
    cJSON_AddBoolToObject(m->config, "attention_bias", meta_has(m, "blk.0.attn_q.bias"));
    two_rotations(m);
}

/* Layers without a window do not rotate. One limit of gates and ups is for all layers. */
void gguf_maple(const struct gguf_meta *m)
{
    const struct gguf_value *caps = meta_numbers(m, "swiglu_clamp_exp");
    gguf_experts(m);
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, "sliding_window");
    gguf_window(m);
    gguf_pattern(m);
    meta_put(m, "swiglu_limit",
             caps && caps->n ? gguf_number_at(caps, 0) : meta_number_or(m, "swiglu_clamp_exp", 7));
    if (!cJSON_GetObjectItemCaseSensitive(m->config, "partial_rotary_factor"))
        meta_put(m, "partial_rotary_factor", 1);
}

/* A number of each layer, as the list `to`. */
void gguf_laguna(const struct gguf_meta *m)
{
    meta_copy_list(m, "attention.head_count", "num_attention_heads_per_layer");
    gguf_window(m);
    if (meta_numbers(m, "attention.sliding_window_pattern"))
        gguf_pattern(m);
    meta_copy(m, "expert_count", "num_experts");
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    meta_copy(m, "expert_feed_forward_length", "moe_intermediate_size");
    meta_copy(m, "expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    meta_copy(m, "expert_weights_scale", "moe_routed_scaling_factor");
    gguf_kinds(m, "mlp_layer_types", "ffn_gate_inp.weight", "sparse", "dense");
    cJSON_AddBoolToObject(m->config, "attention_bias", meta_has(m, "blk.0.attn_q.bias"));
    two_rotations(m);
}

/* The window does not count the token itself, as in the folder. */
void gguf_mimo2(const struct gguf_meta *m)
{
    double window;
    gguf_pattern(m);
    if (meta_number(m, "attention.sliding_window", &window))
        meta_put(m, "sliding_window_size", window);
    meta_set(m, "num_key_value_heads", of_kind(m, "attention.head_count_kv", false));
    meta_put(m, "swa_num_key_value_heads", of_kind(m, "attention.head_count_kv", true));
    meta_put(m, "v_head_dim", meta_number_or(m, "attention.value_length", 0));
    meta_put(m, "attention_value_scale", meta_number_or(m, "attention.value_scale", 1));
    gguf_deepseek_experts(m);
    gguf_kinds(m, "mlp_layer_types", "ffn_gate_inp.weight", "sparse", "dense");
    cJSON_AddBoolToObject(m->config, "attention_bias", meta_has(m, "blk.0.attn_q.bias"));
    two_rotations(m);
}

/* The first `n` elements of the list `key`. */
static void cut_list(const cJSON *o, const char *key, double n)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(o, key);
    while (cJSON_GetArraySize(list) > n)
        cJSON_DeleteItemFromArray(list, cJSON_GetArraySize(list) - 1);
}

/* Step 3.5: layers without a window rotate the first half of what the file says. */
void gguf_step35(const struct gguf_meta *m)
{
    const double head = gguf_head_size(m->s, m->f);
    const double dim = meta_number_or(m, "rope.dimension_count", head);
    gguf_window(m);
    gguf_pattern(m);
    meta_set(m, "num_attention_heads", of_kind(m, "attention.head_count", false));
    meta_put(m, "num_sliding_attention_heads", of_kind(m, "attention.head_count", true));
    meta_copy(m, "expert_count", "moe_num_experts");
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    meta_copy(m, "expert_feed_forward_length", "moe_intermediate_size");
    meta_copy(m, "expert_shared_feed_forward_length", "share_expert_dim");
    meta_copy(m, "expert_weights_scale", "moe_router_scaling_factor");
    cJSON_AddBoolToObject(m->config, "norm_expert_weight",
                          meta_bool_or(m, "expert_weights_norm", true));
    gguf_kinds(m, "mlp_layer_types", "ffn_gate_inp.weight", "sparse", "dense");
    meta_copy_list(m, "swiglu_clamp_exp", "swiglu_limits");
    meta_copy_list(m, "swiglu_clamp_shexp", "swiglu_limits_shared");
    two_rotations(m);
    cJSON *rope = cJSON_GetObjectItemCaseSensitive(m->config, "rope_parameters");
    cJSON *full = cJSON_GetObjectItemCaseSensitive(rope, "full_attention");
    if (!(head > 0))
        return;
    cJSON_DeleteItemFromObjectCaseSensitive(full, "partial_rotary_factor");
    meta_put_in(full, "partial_rotary_factor", meta_part(dim / 2, head));
    cut_list(full, "short_factor", dim / 4);
    cut_list(full, "long_factor", dim / 4);
}

/* The factor of q.k is what the norm of q is filled with. Layers without a window do not rotate. */
void gguf_muse_glimmer(const struct gguf_meta *m)
{
    const struct gguf_tensor *q = gguf_set_tensor(m->s, "blk.0.attn_q_norm.weight");
    const double theta = meta_number_or(m, "rope.freq_base", 10000);
    float factor;
    if (q && q->packing == GGUF_F32 && q->bytes >= sizeof(factor)) {
        memcpy(&factor, q->data, sizeof(factor));
        meta_put(m, "qk_scale_factor", meta_as_written(factor));
    }
    gguf_qkv_bias(m);
    gguf_window(m);
    gguf_caps(m);
    gguf_pattern(m);
    meta_copy(m, "logit_scale", "output_multiplier");
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(m->config, "layer_types"), *t = NULL;
    cJSON *rotations = types ? cJSON_AddArrayToObject(m->config, "layer_rope_theta") : NULL;
    cJSON_ArrayForEach(t, types) cJSON_AddItemToArray(
        rotations, cJSON_CreateNumber(strcmp(t->valuestring, "full_attention") ? theta : 0));
}

void gguf_spark2_5(const struct gguf_meta *m)
{
    gguf_window(m);
    gguf_pattern(m);
    two_rotations(m);
}

/* ---------------------------------------------------------------- others */

void gguf_nanbeige(const struct gguf_meta *m)
{
    gguf_qkv_bias(m);
    meta_copy(m, "num_loops", "num_loops");
    cJSON_AddBoolToObject(m->config, "skip_loop_final_norm",
                          meta_bool_or(m, "skip_loop_final_norm", false));
}

/* One factor of the norm for all branches; those of the branches are 1. */
void gguf_minimax_01(const struct gguf_meta *m)
{
    static const char *const to[] = {"layernorm_full_attention_alpha",
                                     "layernorm_linear_attention_alpha", "layernorm_mlp_alpha"};
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++)
        meta_copy(m, "residual_scale", to[i]);
    gguf_kinds(m, "layer_types", "attn_gate.weight", "linear_attention", "full_attention");
    meta_copy(m, "rope.dimension_count", "rotary_dim");
    meta_copy(m, "expert_count", "num_local_experts");
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    cJSON_AddBoolToObject(m->config, "postnorm", true);
}

/* Scores are sigmoids unless the file says otherwise, as in llama.cpp. */
void gguf_cohere2_moe(const struct gguf_meta *m)
{
    const bool softmax = meta_number_or(m, "expert_gating_func", 2) == 1;
    gguf_qkv_bias(m);
    gguf_window(m);
    gguf_pattern(m);
    meta_copy(m, "logit_scale", "logit_scale");
    meta_copy(m, "expert_count", "num_experts");
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    meta_copy(m, "feed_forward_length", "prefix_dense_intermediate_size");
    meta_set(m, "intermediate_size", meta_number_or(m, "expert_feed_forward_length", 0));
    meta_put(m, "num_shared_experts", meta_number_or(m, "expert_shared_count", 0));
    meta_put(m, "first_k_dense_replace", meta_number_or(m, "leading_dense_block_count", 0));
    cJSON_AddBoolToObject(m->config, "norm_topk_prob",
                          meta_bool_or(m, "expert_weights_norm", false));
    cJSON_AddStringToObject(m->config, "expert_selection_fn", softmax ? "softmax" : "sigmoid");
}

/* Layers that do not rotate have the base 0. */
void gguf_granite_swa(const struct gguf_meta *m)
{
    const struct gguf_value *turns = meta_numbers(m, "attention.rope_pattern");
    const double theta = meta_number_or(m, "rope.freq_base", 10000);
    gguf_granite(m);
    gguf_window(m);
    gguf_pattern(m);
    cJSON *list = turns ? cJSON_AddArrayToObject(m->config, "layer_rope_theta") : NULL;
    for (uint64_t i = 0; list && i < turns->n && i < GGUF_LAYERS_MAX; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(gguf_number_at(turns, i) != 0 ? theta : 0));
    meta_copy(m, "expert_count", "num_local_experts");
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    meta_put(m, "shared_intermediate_size",
             meta_number_or(m, "expert_shared_feed_forward_length", 0));
}

/* Ling 1: softmax scores. */
void gguf_bailing(const struct gguf_meta *m)
{
    gguf_deepseek_experts(m);
    cJSON_AddBoolToObject(m->config, "use_qkv_bias", meta_has(m, "blk.0.attn_q.bias"));
}

/* The first one: weights are not normalised, whatever the file says, as in llama.cpp. */
void gguf_deepseek_moe(const struct gguf_meta *m)
{
    gguf_deepseek_experts(m);
    cJSON_ReplaceItemInObjectCaseSensitive(m->config, "norm_topk_prob", cJSON_CreateFalse());
}

/* DeepSeek-OCR's text model: DeepSeek's first kind, whose q and k keep the order of their rows. */
void gguf_deepseek_ocr(const struct gguf_meta *m)
{
    gguf_deepseek_experts(m);
    cJSON_ReplaceItemInObjectCaseSensitive(
        m->config, "norm_topk_prob",
        cJSON_CreateBool(meta_bool_or(m, "expert_weights_norm", false)));
}

/* Of four layers the first one has no window, and does not rotate, as in llama.cpp; without windows
 * all rotate. */
void gguf_smallthinker(const struct gguf_meta *m)
{
    const double window = meta_number_or(m, "attention.sliding_window", 0);
    cJSON *windows = cJSON_AddArrayToObject(m->config, "sliding_window_layout");
    cJSON *rotations = cJSON_AddArrayToObject(m->config, "rope_layout");
    for (int i = 0; i < meta_layers(m) && i < GGUF_LAYERS_MAX; i++) {
        cJSON_AddItemToArray(windows, cJSON_CreateNumber(window > 0 && i % 4));
        cJSON_AddItemToArray(rotations, cJSON_CreateNumber(!(window > 0) || i % 4));
    }
    if (window > 0)
        meta_put(m, "sliding_window_size", window);
    meta_copy(m, "expert_count", "moe_num_primary_experts");
    meta_copy(m, "expert_used_count", "moe_num_active_primary_experts");
    meta_copy(m, "expert_feed_forward_length", "moe_ffn_hidden_size");
    cJSON_AddBoolToObject(m->config, "moe_primary_router_apply_softmax",
                          meta_number_or(m, "expert_gating_func", 2) == 1);
}

/* MiniMax M3: layers that have an indexer select blocks; the bounds of its activation are not in
 * the file, as in llama.cpp. */
void gguf_minimax_m3(const struct gguf_meta *m)
{
    static const char *const keys[][2] = {{"expert_count", "num_local_experts"},
                                          {"expert_used_count", "num_experts_per_tok"},
                                          {"expert_weights_scale", "routed_scaling_factor"},
                                          {"rope.dimension_count", "rotary_dim"},
                                          {"attention.indexer.head_count", "index_n_heads"},
                                          {"attention.indexer.key_length", "index_head_dim"},
                                          {"attention.indexer.block_size", "index_block_size"},
                                          {"attention.indexer.top_k", "index_topk_blocks"},
                                          {"attention.indexer.local_blocks", "index_local_blocks"}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        meta_copy(m, keys[i][0], keys[i][1]);
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, "partial_rotary_factor");
    meta_set(m, "intermediate_size", meta_number_or(m, "expert_feed_forward_length", 0));
    meta_put(m, "shared_intermediate_size", gguf_first_rows(m, "ffn_up_shexp.weight"));
    if (gguf_first_rows(m, "ffn_up.weight") > 0)
        meta_put(m, "dense_intermediate_size", gguf_first_rows(m, "ffn_up.weight"));
    gguf_kinds(m, "layer_types", "indexer.q_proj.weight", "minimax_m3_sparse", "full_attention");
    gguf_kinds(m, "mlp_layer_types", "ffn_gate_inp.weight", "sparse", "dense");
}
