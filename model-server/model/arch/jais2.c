/* Jais 2: layer norms, biases, an ungated MLP with squared ReLU. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 8192, .rope_theta = 10000});
    config_layer_norm(c, s, "layer_norm_eps", true);
    s->act = config_act(c, "hidden_act", "relu2");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", true);
    s->bias.mlp = config_bool_or(c, "mlp_bias", true);
}

const struct arch arch_jais2 = {
    .types = (const char *const[]){"jais2", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
