/* IBM Granite 3 with experts: Granite with experts in each layer, and in some checkpoints a shared
 * MLP. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_llama(c, s);
    config_multipliers(c, s);
    config_granite_experts(c, s);
}

const struct arch arch_granitemoe = {
    .types = (const char *const[]){"granitemoe", "granitemoeshared", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV,
              NAMES_LLAMA_O, [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              NAMES_GRANITE_EXPERTS},
    .configure = configure,
};
