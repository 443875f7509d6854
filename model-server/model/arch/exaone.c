/* EXAONE 3, 3.5 and Deep (arXiv 2408.03541): Llama under GPT-2's names. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    const uint32_t layers = config_layers(c, "num_layers");
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 2048, .norm_eps = 1e-5, .rope_theta = 10000, .layers = layers});
    s->norm.eps = (float)config_num_or(c, "layer_norm_epsilon", 1e-5);
    s->act = config_act(c, "activation_function", "silu");
}

const struct arch arch_exaone = {
    .types = (const char *const[]){"exaone", NULL},
    .prefix = "transformer.",
    .names = {[W_EMBED] = "transformer.wte",
              [W_FINAL_NORM] = "transformer.ln_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "transformer.h.*.ln_1",
              [W_Q] = "transformer.h.*.attn.attention.q_proj",
              [W_K] = "transformer.h.*.attn.attention.k_proj",
              [W_V] = "transformer.h.*.attn.attention.v_proj",
              [W_O] = "transformer.h.*.attn.attention.out_proj",
              [W_MLP_NORM] = "transformer.h.*.ln_2",
              [W_GATE] = "transformer.h.*.mlp.c_fc_0",
              [W_UP] = "transformer.h.*.mlp.c_fc_1",
              [W_DOWN] = "transformer.h.*.mlp.c_proj"},
    .configure = configure,
};
