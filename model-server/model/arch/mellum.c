/* JetBrains' Mellum 2: Qwen 3 with experts, sliding-window attention in some layers, dense layers
 * where config.json says so, and a separate RoPE for each kind of layer. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 131072, .norm_eps = 1e-6, .rope_theta = 500000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = QK_NORM_HEAD;
    config_moe(c, s, 64, 8);
    s->moe.ffn = config_dim(c, "moe_intermediate_size");
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", true);
    config_windows(c, s, 1024, config_no_layer);
    config_window_rope(c, s, 10000);
    config_mlp_layer_types(c, s, 0);
}

const struct arch arch_mellum = {
    .types = (const char *const[]){"mellum", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS, NAMES_QK_NORM},
    .configure = configure,
};
