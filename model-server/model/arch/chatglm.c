/* ChatGLM 2 and 3, GLM-4 9B in the format of their own repositories (arXiv 2406.12793): the model
 * of glm4.c with other tensor names. */
#include "model-server/model/arch.h"

static void shape(struct config *c, struct decoder_spec *s)
{
    s->hidden = config_dim(c, "hidden_size");
    s->n_layers = config_layers(c, "num_layers");
    s->n_heads = config_heads(c, "num_attention_heads");
    s->head_dim =
        config_head_dim(c, config_u32_or(c, "kv_channels", 0, 0, 1024), s->hidden, s->n_heads);
    s->n_kv_heads = s->n_heads;
    if (config_bool_or(c, "multi_query_attention", false))
        s->n_kv_heads = config_u32(c, "multi_query_group_num", 1, 1u << 16);
    if (s->n_heads % s->n_kv_heads)
        config_fail(c, "%u key-value heads do not divide %u heads", s->n_kv_heads, s->n_heads);
    s->ffn = config_dim(c, "ffn_hidden_size");
    s->vocab = config_vocab(c, config_either(c, "padded_vocab_size", "vocab_size"));
    s->max_positions = config_u32_or(c, "seq_length", 2048, 1, 1u << 30);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    shape(c, s);
    s->norm = (struct norm_spec){.kind = NORM_RMS,
                                 .eps = (float)config_num_or(c, "layernorm_epsilon", 1e-5)};
    config_only(c, "rmsnorm", true);
    config_only(c, "post_layer_norm", true);
    config_only(c, "apply_residual_connection_post_layernorm", false);
    config_only(c, "original_rope", true);
    config_only(c, "tie_word_embeddings", false);
    s->qkv = QKV_STACKED;
    s->mlp = MLP_GATED_PACKED;
    s->act = ACT_SILU;
    const bool all = config_bool_or(c, "add_bias_linear", false);
    s->bias.qkv = all || config_bool_or(c, "add_qkv_bias", false);
    s->bias.o = s->bias.mlp = all;
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i] = (struct layer_spec){.attn_scale = spec_head_scale(s)};
    s->rope[0].dim = s->head_dim / 2;
    s->rope[0].interleaved = true;
    config_rope(c, s, 10000 * config_num_or(c, "rope_ratio", 1));
}

#define L "transformer.encoder.layers.*."
const struct arch arch_chatglm = {
    .types = (const char *const[]){"chatglm", NULL},
    .names = {[W_EMBED] = "transformer.embedding.word_embeddings",
              [W_FINAL_NORM] = "transformer.encoder.final_layernorm",
              [W_HEAD] = "transformer.output_layer",
              [W_ATTN_NORM] = L "input_layernorm",
              [W_QKV] = L "self_attention.query_key_value",
              [W_O] = L "self_attention.dense",
              [W_MLP_NORM] = L "post_attention_layernorm",
              [W_GATE_UP] = L "mlp.dense_h_to_4h",
              [W_DOWN] = L "mlp.dense_4h_to_h"},
    .configure = configure,
};
