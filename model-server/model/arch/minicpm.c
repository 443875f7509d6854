/* MiniCPM 1, 2 and 4, dense (arXiv 2404.06395): Llama with size-dependent scales of embeddings,
 * residuals and logits. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){
                       .max_positions = 2048, .norm_eps = 1e-6, .rope_theta = 10000, .tied = true});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    config_minicpm_factors(c, s, 1, 1);
    if (json_get(c->root, "num_experts"))
        config_fail(c, "`num_experts`: MiniCPM with experts is not supported");
    if (json_get(c->root, "sparse_config"))
        config_fail(c, "`sparse_config` is not supported; without it attention is dense");
}

const struct arch arch_minicpm = {
    .types = (const char *const[]){"minicpm", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
