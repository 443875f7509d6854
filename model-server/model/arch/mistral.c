/* Mistral 7B and its descendants: Llama with sliding-window attention in every layer. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 131072, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    config_windows(c, s, 4096, config_every_layer);
}

const struct arch arch_mistral = {
    .types = (const char *const[]){"mistral", "ministral", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
