/* Nemotron 4, Minitron (arXiv 2402.16819): layer norms that scale by 1 + w, an ungated squared-ReLU
 * MLP, RoPE on half of each head. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s, &(struct config_defaults){.max_positions = 4096, .rope_theta = 10000, .rotary = 0.5});
    config_layer_norm(c, s, "norm_eps", true);
    s->norm.plus = 1;
    s->act = config_act(c, "hidden_act", "relu2");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
}

const struct arch arch_nemotron = {
    .types = (const char *const[]){"nemotron", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
