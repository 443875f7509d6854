/* Qwen 1.5, 2 and 2.5: Llama with biases on q, k, v; the upper layers may have a window. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 32768, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = true;
    config_windows(c, s, 4096, config_upper_layers);
}

const struct arch arch_qwen2 = {
    .types = (const char *const[]){"qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl",
                                   "qwen2_5_vl_text", "qwen2_5_omni_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
