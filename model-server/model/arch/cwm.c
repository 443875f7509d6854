/* Meta's Code World Model: Llama with sliding-window attention in three of four layers. */
#include "model-server/model/arch.h"

static bool all_but_first_of_four(struct config *c, uint32_t layer)
{
    return (void)c, layer % 4 != 0;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 1000000});
    s->act = config_act(c, "hidden_act", "silu");
    config_only(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    config_windows(c, s, 8192, all_but_first_of_four);
}

const struct arch arch_cwm = {
    .types = (const char *const[]){"cwm", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
