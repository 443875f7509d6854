/* HyperCLOVA X (NAVER, arXiv 2404.01954): Granite with a factor that multiplies the logits instead
 * of dividing them; usually norms before and after each sublayer. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 8192, .norm_eps = 1e-5, .rope_theta = 500000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    if (config_bool_or(c, "use_post_norm", true))
        s->norms = NORM_AROUND;
    s->embed_scale = (float)config_num_or(c, "embedding_multiplier", 1);
    s->residual_scale = (float)config_num_or(c, "residual_multiplier", 1);
    s->logit_scale = (float)config_num_or(c, "logits_scaling", 1);
    const double scale = config_num_or(c, "attention_multiplier", (double)spec_head_scale(s));
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = (float)scale;
}

const struct arch arch_hyperclovax = {
    .types = (const char *const[]){"hyperclovax", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, [W_POST_ATTN_NORM] = "model.layers.*.post_norm1",
              [W_POST_MLP_NORM] = "model.layers.*.post_norm2"},
    .configure = configure,
};
