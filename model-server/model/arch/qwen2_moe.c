/* Qwen 1.5 and 2 with experts: biases on q, k and v, one gated shared expert (arXiv 2407.10671). */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 32768, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = config_bool_or(c, "qkv_bias", true);
    config_qwen_experts(c, s, 60, 4);
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", false);
    config_windows(c, s, 4096, config_upper_layers);
    config_sparse_layers(c, s);
}

const struct arch arch_qwen2_moe = {
    .types = (const char *const[]){"qwen2_moe", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS, NAMES_QWEN_SHARED_EXPERT},
    .configure = configure,
};
