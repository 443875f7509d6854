/* DistilBERT (arXiv 1910.01108): BERT without token type embeddings, with its own tensor names. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    s->hidden = config_dim(c, "dim");
    s->n_layers = config_layers(c, "n_layers");
    s->n_heads = s->n_kv_heads = config_heads(c, "n_heads");
    s->head_dim = config_head_dim(c, 0, s->hidden, s->n_heads);
    s->ffn = config_dim(c, "hidden_dim");
    s->vocab = config_vocab(c, "vocab_size");
    s->max_positions = config_u32_or(c, "max_position_embeddings", 512, 1, 1u << 24);
    config_sums(s, 1e-12);
    s->mlp = MLP_PLAIN;
    s->act = config_act(c, "activation", "gelu");
    s->learned_positions = s->bias.qkv = s->bias.o = s->bias.mlp = true; /* sines are stored too */
    config_masked_head(c, s, s->act);
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = spec_head_scale(s);
}

const struct arch arch_distilbert = {
    .types = (const char *const[]){"distilbert", NULL},
    .prefix = "distilbert.",
    .names = {[W_EMBED] = "distilbert.embeddings.word_embeddings",
              [W_POSITIONS] = "distilbert.embeddings.position_embeddings",
              [W_EMBED_NORM] = "distilbert.embeddings.LayerNorm",
              [W_Q] = "distilbert.transformer.layer.*.attention.q_lin",
              [W_K] = "distilbert.transformer.layer.*.attention.k_lin",
              [W_V] = "distilbert.transformer.layer.*.attention.v_lin",
              [W_O] = "distilbert.transformer.layer.*.attention.out_lin",
              [W_POST_ATTN_NORM] = "distilbert.transformer.layer.*.sa_layer_norm",
              [W_UP] = "distilbert.transformer.layer.*.ffn.lin1",
              [W_DOWN] = "distilbert.transformer.layer.*.ffn.lin2",
              [W_POST_MLP_NORM] = "distilbert.transformer.layer.*.output_layer_norm",
              [W_HEAD_PROJECT] = "vocab_transform",
              [W_HEAD_NORM] = "vocab_layer_norm",
              [W_HEAD] = "vocab_projector",
              [W_HEAD_BIAS] = "vocab_projector.bias"},
    .configure = configure,
};
