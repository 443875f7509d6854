/* BitNet b1.58 (Microsoft, arXiv 2402.17764, 2504.12285): Llama with a squared-ReLU gate and a norm
 * before the output projection of each sublayer. Weights are -1, 0 or 1, times a scale
 * (quant/ternary.c). */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-5, .rope_theta = 500000});
    s->act = config_act(c, "hidden_act", "relu2");
    s->sub_norms = true;
    config_only(c, "attention_bias", false);
}

const struct arch arch_bitnet = {
    .types = (const char *const[]){"bitnet", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, [W_ATTN_SUB_NORM] = "model.layers.*.self_attn.attn_sub_norm",
              [W_MLP_SUB_NORM] = "model.layers.*.mlp.ffn_sub_norm"},
    .configure = configure,
};
