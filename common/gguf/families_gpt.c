/* Architectures of GPT-2's generation, and others with config.json keys of their own. */
#include "common/gguf/families.h"

/* The converters write 4 * width regardless of the real size, so the tensor decides. */
static void ffn_width(const struct gguf_meta *m, const char *key)
{
    const struct gguf_tensor *up = gguf_set_tensor(m->s, "blk.0.ffn_up.weight");
    if (up)
        meta_set(m, key, (double)up->dims[1]);
}

static void names_of_gpt2(const struct gguf_meta *m)
{
    static const char *const keys[][2] = {{"embedding_length", "n_embd"},
                                          {"block_count", "n_layer"},
                                          {"attention.head_count", "n_head"},
                                          {"context_length", "n_positions"}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        meta_copy(m, keys[i][0], keys[i][1]);
    ffn_width(m, "n_inner");
}

/* GPT-BigCode with as many key-value heads as heads is GPT-2 whose matrices lie the other way
 * round, as they do in GGUF. */
void gguf_gpt2(const struct gguf_meta *m)
{
    names_of_gpt2(m);
    cJSON_AddBoolToObject(m->config, "multi_query", false);
}

void gguf_starcoder(const struct gguf_meta *m)
{
    names_of_gpt2(m);
    cJSON_AddBoolToObject(m->config, "multi_query", true);
}

void gguf_gptneox(const struct gguf_meta *m)
{
    const double heads = meta_number_or(m, "attention.head_count", 0);
    const double dim = heads > 0 ? meta_number_or(m, "embedding_length", 0) / heads : 0;
    if (dim > 0)
        meta_put(m, "rotary_pct", meta_number_or(m, "rope.dimension_count", dim) / dim);
    meta_put(m, "rotary_emb_base", meta_number_or(m, "rope.freq_base", 10000));
    cJSON_AddBoolToObject(m->config, "use_parallel_residual",
                          meta_bool_or(m, "use_parallel_residual", true));
    cJSON_AddBoolToObject(m->config, "attention_bias", meta_has(m, "blk.0.attn_qkv.bias"));
}

/* The models of 40B and 180B have two norms in front of their branches, that of 11B has one; both
 * have several key-value heads. The base of the rotation, which only the latter has changed, is not
 * in the file. */
void gguf_falcon(const struct gguf_meta *m)
{
    const double kv = meta_number_or(m, "attention.head_count_kv", 1);
    const bool two_norms = meta_has(m, "blk.0.attn_norm_2.weight");
    cJSON_AddBoolToObject(m->config, "new_decoder_architecture", kv > 1);
    cJSON_AddBoolToObject(m->config, "multi_query", true);
    meta_put(m, "num_kv_heads", kv);
    meta_put(m, "num_ln_in_parallel_attn", two_norms ? 2 : 1);
    if (kv > 1 && !two_norms)
        meta_set(m, "rope_theta", meta_number_or(m, "rope.freq_base", 500042));
    ffn_width(m, "ffn_hidden_size");
}

void gguf_phi2(const struct gguf_meta *m) { ffn_width(m, "intermediate_size"); }

void gguf_mpt(const struct gguf_meta *m)
{
    double v;
    cJSON *a = cJSON_AddObjectToObject(m->config, "attn_config");
    const double most = meta_number_or(m, "attention.max_alibi_bias", 0);
    meta_copy(m, "embedding_length", "d_model");
    meta_copy(m, "block_count", "n_layers");
    meta_copy(m, "attention.head_count", "n_heads");
    meta_copy(m, "context_length", "max_seq_len");
    cJSON_AddBoolToObject(a, "alibi", most > 0);
    meta_put_in(a, "alibi_bias_max", most);
    if (meta_number(m, "attention.clamp_kqv", &v) && v > 0)
        meta_put_in(a, "clip_qkv", v);
    if (meta_number(m, "attention.head_count_kv", &v))
        meta_put_in(a, "kv_n_heads", v);
    cJSON_AddBoolToObject(m->config, "no_bias", !meta_has(m, "blk.0.attn_qkv.bias"));
}

void gguf_phimoe(const struct gguf_meta *m)
{
    gguf_window(m);
    meta_copy(m, "expert_count", "num_local_experts");
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    cJSON_AddBoolToObject(m->config, "attention_bias", meta_has(m, "blk.0.attn_q.bias"));
    cJSON_AddBoolToObject(m->config, "lm_head_bias", meta_has(m, "output.bias"));
}

void gguf_chatglm(const struct gguf_meta *m)
{
    const struct gguf_tensor *qkv = gguf_set_tensor(m->s, "blk.0.attn_qkv.weight");
    const double heads = meta_number_or(m, "attention.head_count", 1);
    const double kv = meta_number_or(m, "attention.head_count_kv", heads);
    meta_copy(m, "block_count", "num_layers");
    meta_copy(m, "feed_forward_length", "ffn_hidden_size");
    meta_copy(m, "context_length", "seq_length");
    meta_copy(m, "attention.layer_norm_rms_epsilon", "layernorm_epsilon");
    cJSON_AddBoolToObject(m->config, "multi_query_attention", true);
    meta_put(m, "multi_query_group_num", kv);
    if (qkv && heads + 2 * kv > 0)
        meta_set(m, "head_dim", (double)qkv->dims[1] / (heads + 2 * kv));
    meta_put(m, "rope_ratio", meta_number_or(m, "rope.freq_base", 10000) / 10000);
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, "rope_theta");
    cJSON_AddBoolToObject(m->config, "add_qkv_bias", meta_has(m, "blk.0.attn_qkv.bias"));
}

/* The file has the widths of gate and up together. */
void gguf_qwen(const struct gguf_meta *m)
{
    meta_copy(m, "attention.layer_norm_rms_epsilon", "layer_norm_epsilon");
    meta_put(m, "rotary_emb_base", meta_number_or(m, "rope.freq_base", 10000));
    cJSON_AddBoolToObject(m->config, "no_bias", !meta_has(m, "blk.0.attn_output.bias"));
}

/* The model of 13B has ALiBi, and is recognised by its number of layers, as in llama.cpp. */
void gguf_baichuan(const struct gguf_meta *m)
{
    enum { LAYERS_OF_13B = 40 };
    if (meta_layers(m) != LAYERS_OF_13B)
        return;
    meta_copy(m, "context_length", "model_max_length");
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, "max_position_embeddings");
}

void gguf_dbrx(const struct gguf_meta *m)
{
    static const char *const keys[][2] = {{"embedding_length", "d_model"},
                                          {"block_count", "n_layers"},
                                          {"attention.head_count", "n_heads"},
                                          {"context_length", "max_seq_len"}};
    cJSON *a = cJSON_AddObjectToObject(m->config, "attn_config");
    cJSON *f = cJSON_AddObjectToObject(m->config, "ffn_config");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        meta_copy(m, keys[i][0], keys[i][1]);
    meta_put_in(a, "kv_n_heads", meta_number_or(m, "attention.head_count_kv", 1));
    meta_put_in(a, "rope_theta", meta_number_or(m, "rope.freq_base", 10000));
    meta_put_in(a, "clip_qkv", meta_number_or(m, "attention.clamp_kqv", 0));
    meta_put_in(f, "ffn_hidden_size", meta_number_or(m, "feed_forward_length", 0));
    meta_put_in(f, "moe_num_experts", meta_number_or(m, "expert_count", 0));
    meta_put_in(f, "moe_top_k", meta_number_or(m, "expert_used_count", 0));
    meta_put_in(f, "moe_normalize_expert_weights", 1);
}

/* GPT-2's parts with ALiBi and a gated MLP; the factors are in the weights. Scores are divided by
 * the size of a head, as in llama.cpp. */
void gguf_jais(const struct gguf_meta *m)
{
    const bool usual = meta_number_or(m, "attention.max_alibi_bias", 0) == 8;
    names_of_gpt2(m);
    cJSON_AddStringToObject(m->config, "activation_function", "swiglu");
    cJSON_AddStringToObject(m->config, "position_embedding_type",
                            usual ? "alibi" : "ALiBi of another greatest bias");
    cJSON_AddBoolToObject(m->config, "scale_qk_dot_by_d", true);
}

void gguf_codeshell(const struct gguf_meta *m)
{
    names_of_gpt2(m);
    meta_copy(m, "attention.head_count_kv", "num_query_groups");
    cJSON_AddStringToObject(m->config, "position_embedding_type", "rope");
}

/* The first models: the gate's activation is SiLU, as in llama.cpp. */
void gguf_bitnet(const struct gguf_meta *m)
{
    cJSON_AddStringToObject(m->config, "hidden_act", "silu");
}
