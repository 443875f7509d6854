/* BLOOM (arXiv 2211.05100): ALiBi, a norm of the embedding, q, k and v of a head side by side. */
#include "common/json.h"
#include "model-server/model/arch.h"

static uint32_t either(struct config *c, const char *key, const char *other, uint32_t max)
{
    return config_u32(c, json_get(c->root, key) ? key : other, 1, max);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    s->hidden = either(c, "hidden_size", "n_embed", 1u << 22);
    s->n_layers = either(c, "n_layer", "num_hidden_layers", SPEC_MAX_LAYERS);
    s->n_heads = s->n_kv_heads = either(c, "n_head", "num_attention_heads", 1u << 16);
    s->head_dim = config_head_dim(c, 0, s->hidden, s->n_heads);
    s->ffn = 4 * s->hidden;
    s->vocab = config_vocab(c, "vocab_size");
    s->tied = config_bool_or(c, "tie_word_embeddings", true);
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    config_only(c, "apply_residual_connection_post_layernorm", false);
    s->embed_norm = true;
    s->qkv = QKV_GROUPED;
    s->mlp = MLP_PLAIN;
    s->act = ACT_GELU_TANH;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    s->alibi = (struct alibi_spec){ALIBI_PAPER, 8};
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = spec_head_scale(s);
}

const struct arch arch_bloom = {
    .types = (const char *const[]){"bloom", NULL},
    .prefix = "transformer.",
    .names = {[W_EMBED] = "transformer.word_embeddings",
              [W_EMBED_NORM] = "transformer.word_embeddings_layernorm",
              [W_FINAL_NORM] = "transformer.ln_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "transformer.h.*.input_layernorm",
              [W_MLP_NORM] = "transformer.h.*.post_attention_layernorm",
              [W_QKV] = "transformer.h.*.self_attention.query_key_value",
              [W_O] = "transformer.h.*.self_attention.dense",
              [W_UP] = "transformer.h.*.mlp.dense_h_to_4h",
              [W_DOWN] = "transformer.h.*.mlp.dense_4h_to_h"},
    .configure = configure,
};
