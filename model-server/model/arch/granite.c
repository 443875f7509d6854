/* IBM Granite 3: Llama with four multipliers. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    s->embed_scale = (float)config_num_or(c, "embedding_multiplier", 1);
    s->residual_scale = (float)config_num_or(c, "residual_multiplier", 1);
    double divisor = config_num_or(c, "logits_scaling", 1);
    if (divisor == 0)
        config_fail(c, "`logits_scaling` must not be 0");
    s->logit_scale = (float)(1 / (divisor == 0 ? 1 : divisor));
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = (float)config_num_or(c, "attention_multiplier", 1);
}

const struct arch arch_granite = {
    .types = (const char *const[]){"granite", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
