/* Architectures that compute vectors or scores: encoders, and decoders that see both ways. */
#include "common/gguf/families.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void put_word(const struct gguf_meta *m, const char *key, const char *word)
{
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, key);
    cJSON_AddStringToObject(m->config, key, word);
}

/* Rows of the table of token types, 0: there is none. */
static double type_rows(const struct gguf_meta *m)
{
    const struct gguf_tensor *t = gguf_set_tensor(m->s, "token_types.weight");
    return t ? (double)t->dims[1] : 0;
}

/* A BERT without token types is DistilBERT, whose config.json has words of its own. The position
 * tables of RoBERTa and its kin begin at the first position that is used, as BERT's. */
void gguf_bert(const struct gguf_meta *m)
{
    static const char *const distil[][2] = {{"embedding_length", "dim"},
                                            {"block_count", "n_layers"},
                                            {"attention.head_count", "n_heads"},
                                            {"feed_forward_length", "hidden_dim"}};
    meta_put(m, "type_vocab_size", type_rows(m));
    if (type_rows(m) > 0)
        return;
    put_word(m, "model_type", "distilbert");
    for (size_t i = 0; i < sizeof(distil) / sizeof(distil[0]); i++)
        meta_copy(m, distil[i][0], distil[i][1]);
}

void gguf_nomic_bert(const struct gguf_meta *m)
{
    meta_put(m, "type_vocab_size", type_rows(m));
    meta_set(m, "rope_theta", meta_number_or(m, "rope.freq_base", 1000));
}

/* Jina Embeddings 2, whose code model has norms of q and k, which is refused. */
void gguf_jina_bert(const struct gguf_meta *m)
{
    meta_put(m, "type_vocab_size", type_rows(m));
    put_word(m, "position_embedding_type", "alibi");
    put_word(m, "feed_forward_type", "geglu");
    cJSON_AddBoolToObject(m->config, "gated_layers_in_halves",
                          meta_has(m, "blk.0.ffn_gate.weight"));
    cJSON_AddBoolToObject(m->config, "qk_layernorm", meta_has(m, "blk.0.attn_q_norm.weight"));
}

/* The keys of Nomic's repository. Files lack the bias of the experts' sum, as llama.cpp does. */
void gguf_nomic_bert_moe(const struct gguf_meta *m)
{
    static const char *const keys[][2] = {{"embedding_length", "n_embd"},
                                          {"block_count", "n_layer"},
                                          {"attention.head_count", "n_head"},
                                          {"feed_forward_length", "n_inner"},
                                          {"context_length", "n_positions"},
                                          {"context_length", "max_trained_positions"},
                                          {"expert_count", "num_experts"},
                                          {"expert_used_count", "moe_top_k"},
                                          {"moe_every_n_layers", "moe_every_n_layers"}};
    static const char *const biases[][2] = {{"blk.0.attn_qkv.bias", "qkv_proj_bias"},
                                            {"blk.0.ffn_up.bias", "mlp_fc1_bias"},
                                            {"blk.0.ffn_down.bias", "mlp_fc2_bias"}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        meta_copy(m, keys[i][0], keys[i][1]);
    for (size_t i = 0; i < sizeof(biases) / sizeof(biases[0]); i++)
        cJSON_AddBoolToObject(m->config, biases[i][1], meta_has(m, biases[i][0]));
    meta_put(m, "rotary_emb_base", meta_number_or(m, "rope.freq_base", 10000));
    put_word(m, "activation_function", "gelu");
    cJSON_AddBoolToObject(m->config, "use_expert_bias", false);
    meta_put(m, "type_vocab_size", type_rows(m));
}

/* The file says the width of the gated MLP, config.json that of one without a gate. llama.cpp reads
 * the rows of attn_qkv in another order than the model's authors, whose order they have here. */
void gguf_neo_bert(const struct gguf_meta *m)
{
    const double gated = meta_number_or(m, "feed_forward_length", 0);
    meta_set(m, "intermediate_size", ceil(gated * 1.5));
    meta_copy(m, "context_length", "max_length");
    meta_set(m, "norm_eps", meta_number_or(m, "attention.layer_norm_rms_epsilon", 1e-6));
}

/* Jina Embeddings 3 without its adapters, which have files of their own. */
void gguf_jina_bert_v3(const struct gguf_meta *m)
{
    cJSON *classes = cJSON_AddObjectToObject(m->config, "auto_map");
    cJSON_AddStringToObject(classes, "AutoConfig", "XLMRobertaFlashConfig");
    put_word(m, "position_embedding_type", "rotary");
    meta_put(m, "type_vocab_size", type_rows(m));
    meta_put(m, "rotary_emb_base", meta_number_or(m, "rope.freq_base", 10000));
}

void gguf_modern_bert(const struct gguf_meta *m)
{
    struct gguf_str act;
    char word[32];
    meta_copy(m, "attention.layer_norm_epsilon", "norm_eps");
    meta_put(m, "local_attention", meta_number_or(m, "attention.sliding_window", 128));
    meta_put(m, "global_attn_every_n_layers",
             meta_number_or(m, "attention.sliding_window_pattern", 3));
    meta_put(m, "global_rope_theta", meta_number_or(m, "rope.freq_base", 160000));
    meta_put(m, "local_rope_theta", meta_number_or(m, "rope.freq_base_swa", 10000));
    if (meta_text(m, "hidden_activation", &act) && act.n < sizeof(word)) {
        snprintf(word, sizeof(word), "%.*s", (int)act.n, act.p);
        put_word(m, "hidden_activation", word);
    }
}

/* Gated MLPs have GELU there, others a ReLU, and the farthest distance is 128, as in llama.cpp.
 * UMT5 has numbers of distances in every layer. */
void gguf_t5(const struct gguf_meta *m)
{
    static const char *const keys[][2] = {
        {"embedding_length", "d_model"},
        {"feed_forward_length", "d_ff"},
        {"attention.head_count", "num_heads"},
        {"attention.key_length", "d_kv"},
        {"block_count", "num_layers"},
        {"decoder_block_count", "num_decoder_layers"},
        {"context_length", "n_positions"},
        {"attention.relative_buckets_count", "relative_attention_num_buckets"},
        {"decoder_start_token_id", "decoder_start_token_id"}};
    cJSON *classes = cJSON_AddArrayToObject(m->config, "architectures");
    cJSON_AddItemToArray(
        classes, cJSON_CreateString(m->f->pair ? "T5ForConditionalGeneration" : "T5EncoderModel"));
    if (meta_has(m, "enc.blk.1.attn_rel_b.weight"))
        put_word(m, "model_type", "umt5");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        meta_copy(m, keys[i][0], keys[i][1]);
    meta_set(m, "layer_norm_epsilon", meta_number_or(m, "attention.layer_norm_rms_epsilon", 1e-6));
    put_word(m, "feed_forward_proj",
             meta_has(m, "enc.blk.0.ffn_gate.weight") ? "gated-gelu" : "relu");
}

void gguf_gemma_embedding(const struct gguf_meta *m)
{
    gguf_window(m);
    gguf_pattern(m);
    meta_put(m, "query_pre_attn_scalar", gguf_head_size(m->s, m->f));
    meta_put(m, "rope_local_base_freq", meta_number_or(m, "rope.freq_base_swa", 10000));
    cJSON_AddBoolToObject(m->config, "use_bidirectional_attention", true);
}
