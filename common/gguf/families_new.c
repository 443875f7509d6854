/* Architectures of 2024 and later: routers of DeepSeek's kind in models of other makers, and new
 * members of older families. */
#include "common/gguf/families.h"
#include <stdio.h>

/* q grows with the logarithm of the position; both factors of the stretched rotation are equal. */
void gguf_mistral3(const struct gguf_meta *m)
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

/* The three factors are not in the file: llama.cpp has those of the only model. The size of a value
 * is what the matrix leaves of a head. */
void gguf_minicpm3(const struct gguf_meta *m)
{
    const struct gguf_tensor *both = gguf_set_tensor(m->s, "blk.0.attn_kv_b.weight");
    const double rope = meta_number_or(m, "rope.dimension_count", 0);
    const double nope = meta_number_or(m, "attention.key_length", 0) - rope;
    const double heads = meta_number_or(m, "attention.head_count", 0);
    if (both && heads > 0)
        meta_put(m, "v_head_dim", (double)both->dims[1] / heads - nope);
    meta_copy(m, "attention.q_lora_rank", "q_lora_rank");
    meta_copy(m, "attention.kv_lora_rank", "kv_lora_rank");
    meta_put(m, "qk_rope_head_dim", rope);
    meta_put(m, "qk_nope_head_dim", nope);
    meta_put(m, "scale_emb", 12);
    meta_put(m, "scale_depth", 1.4);
    meta_put(m, "dim_model_base", 256);
}

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

/* Rows of the first layer's tensor that there is; 0: there is none. */
static double first_rows(const struct gguf_meta *m, const char *part)
{
    char name[GGUF_KEY_MAX];
    for (int i = 0; i < meta_layers(m) && i < GGUF_LAYERS_MAX; i++) {
        snprintf(name, sizeof(name), "blk.%d.%s", i, part);
        const struct gguf_tensor *t = gguf_set_tensor(m->s, name);
        if (t)
            return (double)t->dims[1];
    }
    return 0;
}

/* Files since the latent vector is one key-value head of its own have the sizes of a head's key and
 * value apart. */
void gguf_kimi_linear(const struct gguf_meta *m)
{
    const double rope = meta_number_or(m, "rope.dimension_count", 0);
    const double key = meta_number_or(m, "attention.key_length", 0);
    gguf_deepseek_experts(m);
    meta_copy(m, "expert_count", "num_local_experts");
    gguf_kinds(m, "layer_types", "ssm_conv1d_q.weight", "linear_attention", "full_attention");
    gguf_kinds(m, "mlp_layer_types", "ffn_gate_inp.weight", "sparse", "dense");
    meta_put(m, "linear_num_heads", first_rows(m, "ssm_beta.weight"));
    meta_copy(m, "kda.head_dim", "linear_head_dim");
    meta_copy(m, "ssm.conv_kernel", "linear_conv_kernel_dim");
    meta_copy(m, "attention.q_lora_rank", "q_lora_rank");
    meta_copy(m, "attention.kv_lora_rank", "kv_lora_rank");
    meta_put(m, "qk_rope_head_dim", rope);
    meta_put(m, "qk_nope_head_dim", meta_number_or(m, "attention.key_length_mla", key) - rope);
    meta_put(m, "v_head_dim",
             meta_number_or(m, "attention.value_length_mla",
                            meta_number_or(m, "attention.value_length", 0)));
}
