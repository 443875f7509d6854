/* CTRL (arXiv 1909.05858): GPT-2 with sinusoidal positions, scaled embeddings and ReLU. */
#include "model-server/model/arch.h"

static const double NORM_EPS = 1e-6; /* of the layers' norms, whatever the file's is */

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 256, .tied = true});
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    s->norm.eps = (float)NORM_EPS;
    if (config_num_or(c, "layer_norm_epsilon", NORM_EPS) != NORM_EPS)
        config_fail(c, "`layer_norm_epsilon`: only 1e-6 is supported");
    s->act = ACT_RELU;
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = s->bias.head = s->learned_positions = true;
    config_sines(c, s, SINES_OF_HALF);
    s->embed_scale = sqrtf((float)s->hidden);
}

static const struct config_key keys[] = {{"hidden_size", "n_embd"},
                                         {"num_hidden_layers", "n_layer"},
                                         {"num_attention_heads", "n_head"},
                                         {"max_position_embeddings", "n_positions"},
                                         {"intermediate_size", "dff", true},
                                         {"num_key_value_heads", NULL},
                                         {NULL, NULL}};

#define LAYER "transformer.h.*."
const struct arch arch_ctrl = {
    .types = (const char *const[]){"ctrl", NULL},
    .prefix = "transformer.",
    .keys = keys,
    .names = {[W_EMBED] = "transformer.w",
              [W_FINAL_NORM] = "transformer.layernorm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = LAYER "layernorm1",
              [W_Q] = LAYER "multi_head_attention.Wq",
              [W_K] = LAYER "multi_head_attention.Wk",
              [W_V] = LAYER "multi_head_attention.Wv",
              [W_O] = LAYER "multi_head_attention.dense",
              [W_MLP_NORM] = LAYER "layernorm2",
              [W_UP] = LAYER "ffn.0",
              [W_DOWN] = LAYER "ffn.2"},
    .configure = configure,
};
