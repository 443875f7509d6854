/* XGLM (arXiv 2112.10668): positions of sines and cosines, scaled embeddings, layer norms. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    s->hidden = config_dim(c, "d_model");
    s->n_layers = config_layers(c, "num_layers");
    s->n_heads = s->n_kv_heads = config_heads(c, "attention_heads");
    s->head_dim = config_head_dim(c, 0, s->hidden, s->n_heads);
    s->ffn = config_dim(c, "ffn_dim");
    s->vocab = config_vocab(c, "vocab_size");
    s->max_positions = config_u32_or(c, "max_position_embeddings", 2048, 1, 1u << 24);
    config_layer_norm(c, s, "layer_norm_eps", true);
    config_only(c, "add_cross_attention", false);
    s->act = config_act(c, "activation_function", "gelu");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->learned_positions = s->sines = true;
    s->position_offset = 2;
    if (s->hidden % 2 || s->hidden < 4)
        config_fail(c, "`d_model` must be even and at least 4");
    s->tied = config_bool_or(c, "tie_word_embeddings", true);
    s->embed_scale = config_bool_or(c, "scale_embedding", true) ? sqrtf((float)s->hidden) : 1;
    s->residual_scale = s->logit_scale = 1;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = spec_head_scale(s);
}

const struct arch arch_xglm = {
    .types = (const char *const[]){"xglm", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.layer_norm",
              [W_HEAD] = "lm_head",
              NAMES_FAIRSEQ("model.layers.*.")},
    .configure = configure,
};
