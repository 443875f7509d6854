/* IBM Granite 3: Llama with four multipliers. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_llama(c, s);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    config_multipliers(c, s);
}

const struct arch arch_granite = {
    .types = (const char *const[]){"granite", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
