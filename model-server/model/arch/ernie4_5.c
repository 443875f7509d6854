/* ERNIE 4.5, dense: Llama whose neighbouring elements rotate. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 500000, .tied = true});
    s->act = config_act(c, "hidden_act", "silu");
    s->rope[0].interleaved = true;
    s->bias.qkv = s->bias.o = s->bias.mlp = config_bool_or(c, "use_bias", false);
}

const struct arch arch_ernie4_5 = {
    .types = (const char *const[]){"ernie4_5", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
