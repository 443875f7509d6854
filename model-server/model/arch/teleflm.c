/* Tele-FLM (arXiv 2404.16645): Llama with muP multipliers of embeddings and logits (arXiv
 * 2304.06875). */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_llama(c, s);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    if (!config_bool_or(c, "use_mup", false))
        return;
    const double scale = config_num_or(c, "mup_scale_factor", 1);
    s->embed_scale = (float)config_num_or(c, "input_mult", 1);
    if (!(scale > 0))
        config_fail(c, "`mup_scale_factor` must be above 0");
    else
        s->logit_scale = (float)(config_num_or(c, "output_mult", 1) / scale);
}

const struct arch arch_teleflm = {
    .types = (const char *const[]){"TeleFLM", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
