/* EuroBERT (arXiv 2503.05500): Llama whose tokens see all others. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 8192, .norm_eps = 1e-5, .rope_theta = 250000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    s->both_ways = s->no_head = true;
}

const struct arch arch_eurobert = {
    .types = (const char *const[]){"eurobert", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
