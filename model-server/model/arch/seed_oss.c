/* Seed-OSS: Llama with biases on q, k and v and an explicit head size. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 524288, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = config_bool_or(c, "attention_bias", true);
    s->bias.o = config_bool_or(c, "attention_out_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
}

const struct arch arch_seed_oss = {
    .types = (const char *const[]){"seed_oss", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
