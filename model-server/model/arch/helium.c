/* Helium (Kyutai): Llama with interleaved RoPE. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 4096, .norm_eps = 1e-8, .rope_theta = 100000});
    s->act = config_act(c, "hidden_act", "silu");
    s->rope[0].interleaved = true;
    s->bias.qkv = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
}

const struct arch arch_helium = {
    .types = (const char *const[]){"helium", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
