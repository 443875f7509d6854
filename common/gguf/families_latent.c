/* Keys and values that are projected from a latent vector of a token. */
#include "common/gguf/families.h"

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

void gguf_plm(const struct gguf_meta *m)
{
    const double rope = meta_number_or(m, "rope.dimension_count", 0);
    meta_copy(m, "attention.kv_lora_rank", "kv_lora_rank");
    meta_copy(m, "attention.value_length", "v_head_dim");
    meta_put(m, "qk_rope_head_dim", rope);
    meta_put(m, "qk_nope_head_dim", meta_number_or(m, "attention.key_length", 0) - rope);
}

/* DeepSeek V2, V3 and their derivatives (Kimi K2, GLM 4.7 Flash). Newer files distinguish the sizes
 * of a head's key and value from those of the latent vector. */
void gguf_latent(const struct gguf_meta *m)
{
    const double rope = meta_number_or(m, "rope.dimension_count", 0);
    const double key = meta_number_or(m, "attention.key_length", 0);
    const double value = meta_number_or(m, "attention.value_length", 0);
    double log_mul;
    gguf_deepseek_experts(m);
    meta_copy(m, "attention.q_lora_rank", "q_lora_rank");
    meta_copy(m, "attention.kv_lora_rank", "kv_lora_rank");
    meta_put(m, "qk_rope_head_dim", rope);
    meta_put(m, "qk_nope_head_dim", meta_number_or(m, "attention.key_length_mla", key) - rope);
    meta_put(m, "v_head_dim", meta_number_or(m, "attention.value_length_mla", value));
    cJSON *scaling = cJSON_GetObjectItemCaseSensitive(m->config, "rope_scaling");
    if (scaling && meta_number(m, "rope.scaling.yarn_log_multiplier", &log_mul)) {
        meta_put_in(scaling, "mscale", meta_as_written(log_mul * 10));
        meta_put_in(scaling, "mscale_all_dim", meta_as_written(log_mul * 10));
    }
}

void gguf_deepseek2(const struct gguf_meta *m)
{
    const bool sigmoid = meta_number_or(m, "expert_gating_func", 1) == 2;
    gguf_latent(m);
    if (!sigmoid) { /* V2: no selection bias; expert groups if specified */
        cJSON_ReplaceItemInObjectCaseSensitive(m->config, "model_type",
                                               cJSON_CreateString("deepseek_v2"));
        cJSON_AddStringToObject(
            m->config, "topk_method",
            meta_number_or(m, "expert_group_count", 1) > 1 ? "group_limited_greedy" : "greedy");
    }
}

/* Softmax scores in groups; q grows with the position. */
void gguf_mistral4(const struct gguf_meta *m)
{
    double v;
    gguf_latent(m);
    cJSON *scaling = cJSON_GetObjectItemCaseSensitive(m->config, "rope_scaling");
    if (scaling && meta_number(m, "attention.temperature_scale", &v))
        meta_put_in(scaling, "llama_4_scaling_beta", v);
}

/* DeepSeek V3.2: an indexer in each layer. */
void gguf_deepseek32(const struct gguf_meta *m)
{
    gguf_latent(m);
    meta_copy(m, "attention.indexer.head_count", "index_n_heads");
    meta_copy(m, "attention.indexer.key_length", "index_head_dim");
    meta_copy(m, "attention.indexer.top_k", "index_topk");
}

/* GLM-5: an indexer in layers that have its tensors. */
void gguf_glm_dsa(const struct gguf_meta *m)
{
    gguf_deepseek32(m);
    gguf_kinds(m, "indexer_types", "indexer.attn_q_b.weight", "full", "shared");
}
