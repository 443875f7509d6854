/* Models whose layers read several residual streams, or whose stacks of layers run in turns. */
#include "common/gguf/families.h"

/* What all models with several streams have. */
static void streams(const struct gguf_meta *m)
{
    meta_copy(m, "hyper_connection.count", "hc_mult");
    meta_copy(m, "hyper_connection.epsilon", "hc_eps");
    meta_copy(m, "hyper_connection.magnitude", "hc_magnitude");
    meta_copy(m, "hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters");
}

static void indexer(const struct gguf_meta *m)
{
    meta_copy(m, "attention.indexer.head_count", "index_n_heads");
    meta_copy(m, "attention.indexer.key_length", "index_head_dim");
    meta_copy(m, "attention.indexer.top_k", "index_topk");
}

/* One bound of the activation for all layers. Without it there is none, which the families do not
 * have: 0 is refused. */
static void bound(const struct gguf_meta *m)
{
    meta_put(m, "swiglu_limit", gguf_family_number(m->s, m->f, "swiglu_clamp_exp"));
}

/* Hunyuan V4. Neighbouring elements rotate, and norms of latent vectors have the model's eps, as in
 * llama.cpp and in the text side of the model with vision. */
void gguf_hy_v4(const struct gguf_meta *m)
{
    gguf_latent(m);
    indexer(m);
    streams(m);
    bound(m);
    gguf_kinds(m, "indexer_types", "indexer.attn_q_b.weight", "full", "shared");
    gguf_kinds(m, "mlp_layer_types", "ffn_gate_inp.weight", "sparse", "dense");
}

/* GLM-5.3: decays without a floor have no key. */
void gguf_glm5_next(const struct gguf_meta *m)
{
    double v;
    gguf_kimi_delta(m);
    indexer(m);
    streams(m);
    bound(m);
    gguf_kinds(m, "indexer_types", "indexer.attn_q_b.weight", "full", "shared");
    meta_copy(m, "attention.indexer.kpool", "index_kpool");
    cJSON_AddBoolToObject(m->config, "index_kpool_always_select_tail",
                          meta_bool_or(m, "attention.indexer.kpool_select_tail", true));
    if (meta_number(m, "kda.gate_lower_bound", &v))
        meta_put(m, "linear_lower_bound", v);
    else
        cJSON_AddNullToObject(m->config, "linear_lower_bound");
}

/* DeepSeek V4: the number of tokens of an entry says what a layer attends to. */
void gguf_deepseek4(const struct gguf_meta *m)
{
    gguf_deepseek_experts(m);
    gguf_window(m);
    indexer(m);
    streams(m);
    bound(m);
    meta_copy(m, "attention.q_lora_rank", "q_lora_rank");
    meta_copy(m, "attention.output_group_count", "o_groups");
    meta_copy(m, "attention.output_lora_rank", "o_lora_rank");
    meta_copy(m, "attention.compress_rope_freq_base", "compress_rope_theta");
    meta_copy(m, "hash_layer_count", "num_hash_layers");
    meta_copy_list(m, "attention.compress_ratios", "compress_ratios");
    cJSON_AddStringToObject(m->config, "scoring_func",
                            meta_number_or(m, "expert_gating_func", 4) == 2 ? "sigmoid"
                                                                            : "sqrtsoftplus");
}

/* HRM-Text: the file counts a layer once for each of its turns. */
void gguf_hrm_text(const struct gguf_meta *m)
{
    gguf_qkv_bias(m);
    meta_copy(m, "embedding_scale", "embedding_scale");
    meta_copy(m, "hrm.layers_per_stack", "num_layers_per_stack");
    meta_copy(m, "hrm.h_cycles", "H_cycles");
    meta_copy(m, "hrm.l_cycles", "L_cycles");
}
