/* DiffLlama: Llama with differential attention (arXiv 2410.05258). */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_llama(c, s);
    if (s->n_kv_heads % 2)
        config_fail(c, "%u key-value heads are not pairs", s->n_kv_heads);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].mixer = MIXER_DIFFERENCE;
}

const struct arch arch_diffllama = {
    .types = (const char *const[]){"diffllama", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, [W_LAMBDA_Q] = "model.layers.*.self_attn.lambda_q1",
              [W_LAMBDA_K] = "model.layers.*.self_attn.lambda_k1",
              [W_LAMBDA_Q_MINUS] = "model.layers.*.self_attn.lambda_q2",
              [W_LAMBDA_K_MINUS] = "model.layers.*.self_attn.lambda_k2"},
    .configure = configure,
};
