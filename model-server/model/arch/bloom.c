/* BLOOM (arXiv 2211.05100): ALiBi, a norm after the embedding, q, k and v interleaved per head in
 * one matrix. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.ffn_times = 4, .tied = true});
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    if (config_bool_or(c, "apply_residual_connection_post_layernorm", false)) {
        s->norms = NORM_STREAM;
        for (uint32_t i = 0; i < s->n_layers; i++)
            s->layers[i].keep[0] = s->layers[i].keep[1] = s->layers[i].add[0] =
                s->layers[i].add[1] = 1;
    }
    s->embed_norm = true;
    s->qkv = QKV_GROUPED;
    s->mlp = MLP_PLAIN;
    s->act = ACT_GELU_TANH;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->alibi = (struct alibi_spec){ALIBI_PAPER, 8};
}

static const struct config_key keys[] = {{"hidden_size", "n_embed"},
                                         {"num_hidden_layers", "n_layer"},
                                         {"num_attention_heads", "n_head"},
                                         {"num_key_value_heads", NULL},
                                         {"intermediate_size", NULL},
                                         {"max_position_embeddings", NULL},
                                         {NULL, NULL}};

const struct arch arch_bloom = {
    .types = (const char *const[]){"bloom", NULL},
    .prefix = "transformer.",
    .keys = keys,
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
