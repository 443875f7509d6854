/* Ministral 3: Mistral whose rotation is stretched (yarn) and whose q grows with the position. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 262144, .norm_eps = 1e-5, .rope_theta = 1000000});
    s->act = config_act(c, "hidden_act", "silu");
    config_windows(c, s, 0, config_every_layer);
    const double beta = config_rope_num(c, "llama_4_scaling_beta", 0);
    const double length = config_rope_num(c, "original_max_position_embeddings", 0);
    if (beta == 0)
        return;
    if (!(length > 0)) {
        config_fail(c, "`llama_4_scaling_beta` without `original_max_position_embeddings`");
        return;
    }
    s->q_growth = (struct q_growth){.beta = beta, .length = length};
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].q_grows = true;
}

const struct arch arch_ministral3 = {
    .types = (const char *const[]){"ministral3", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
