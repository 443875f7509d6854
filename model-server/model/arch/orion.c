/* Orion 14B (OrionStar, arXiv 2401.12246): Llama with layer norms. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 4096, .rope_theta = 10000});
    config_layer_norm(c, s, "rms_norm_eps", true);
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
}

const struct arch arch_orion = {
    .types = (const char *const[]){"orion", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
