/* InternLM 3: Llama with one bias switch for q, k and v and one for all other matrices. Checkpoints
 * of transformers 5 have Llama's switches. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 32768, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    const bool attention = config_bool_or(c, "attention_bias", false);
    const bool rest = config_bool_or(c, "bias", false);
    s->bias.qkv = config_bool_or(c, "qkv_bias", attention);
    s->bias.o = rest || attention;
    s->bias.mlp = config_bool_or(c, "mlp_bias", rest);
}

const struct arch arch_internlm3 = {
    .types = (const char *const[]){"internlm3", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
