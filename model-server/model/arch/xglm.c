/* XGLM (arXiv 2112.10668): sinusoidal positions, scaled embeddings, layer norms. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 2048, .tied = true});
    config_layer_norm(c, s, "layer_norm_eps", true);
    config_only(c, "add_cross_attention", false);
    s->act = config_act(c, "activation_function", "gelu");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->learned_positions = true;
    s->position_offset = 2;
    config_sines(c, s, SINES_TO_LAST);
    s->embed_scale = config_bool_or(c, "scale_embedding", true) ? sqrtf((float)s->hidden) : 1;
}

static const struct config_key keys[] = {{"hidden_size", "d_model"},
                                         {"num_hidden_layers", "num_layers"},
                                         {"num_attention_heads", "attention_heads"},
                                         {"intermediate_size", "ffn_dim", true},
                                         {"num_key_value_heads", NULL},
                                         {NULL, NULL}};

const struct arch arch_xglm = {
    .types = (const char *const[]){"xglm", NULL},
    .prefix = "model.",
    .keys = keys,
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.layer_norm",
              [W_HEAD] = "lm_head",
              NAMES_FAIRSEQ("model.layers.*.")},
    .configure = configure,
};
