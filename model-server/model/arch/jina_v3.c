/* Jina Embeddings 3 (arXiv 2409.10173) in the format of transformers: XLM-RoBERTa with RoPE. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 8194, .rope_theta = 20000});
    config_sums(s, config_num_or(c, "layer_norm_eps", 1e-5));
    config_type_rows(c, s);
    s->act = config_act(c, "hidden_act", "gelu");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
}

#define LAYER "roberta.layers.*."
const struct arch arch_jina_v3 = {
    .types = (const char *const[]){"jina_embeddings_v3", NULL},
    .prefix = "roberta.",
    .names = {[W_EMBED] = "roberta.embeddings.word_embeddings",
              [W_TOKEN_TYPES] = "roberta.embeddings.token_type_embeddings",
              [W_EMBED_NORM] = "roberta.embeddings.LayerNorm",
              [W_Q] = LAYER "self_attn.q_proj",
              [W_K] = LAYER "self_attn.k_proj",
              [W_V] = LAYER "self_attn.v_proj",
              [W_O] = LAYER "self_attn.o_proj",
              [W_POST_ATTN_NORM] = LAYER "post_attention_layernorm",
              [W_UP] = LAYER "mlp.fc1",
              [W_DOWN] = LAYER "mlp.fc2",
              [W_POST_MLP_NORM] = LAYER "post_mlp_layernorm"},
    .configure = configure,
};
