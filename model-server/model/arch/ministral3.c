/* Ministral 3: Mistral with YaRN and queries scaled by position. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 262144, .norm_eps = 1e-5, .rope_theta = 1000000});
    s->act = config_act(c, "hidden_act", "silu");
    config_windows(c, s, 0, config_every_layer);
    config_q_growth(c, s);
}

const struct arch arch_ministral3 = {
    .types = (const char *const[]){"ministral3", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
