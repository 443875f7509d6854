/* Mixtral: Mistral with experts and a softmax router. arXiv 2401.04088 */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){
                       .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 1000000});
    s->act = config_act(c, "hidden_act", "silu");
    config_moe(c, s, 8, 2);
    s->moe.ffn = s->ffn;
    s->moe.renormalise = true;
    config_windows(c, s, 0, config_every_layer);
    config_moe_layers(s);
}

const struct arch arch_mixtral = {
    .types = (const char *const[]){"mixtral", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV,
              NAMES_LLAMA_O, [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              NAMES_BLOCK_SPARSE_EXPERTS},
    .configure = configure,
};
