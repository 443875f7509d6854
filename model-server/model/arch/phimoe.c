/* Phi-3.5-MoE: layer norms, biases, and experts selected by SparseMixer (arXiv 2404.14219,
 * 2409.12136). */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){
                       .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 1000000});
    s->max_positions = config_u32_or(c, "max_position_embeddings", 131072, 1, 1u << 30);
    config_layer_norm(c, s, "rms_norm_eps", true);
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.head = config_bool_or(c, "lm_head_bias", false);
    config_moe(c, s, 16, 2);
    if (s->moe.top_k != 2)
        config_fail(c, "`num_experts_per_tok`: SparseMixer is defined for 2");
    s->moe.ffn = s->ffn;
    s->moe.score = MOE_SPARSEMIXER;
    s->moe.jitter = (float)config_num_or(c, "router_jitter_noise", 0.01);
    config_windows(c, s, 0, config_every_layer);
    config_moe_layers(s);
}

const struct arch arch_phimoe = {
    .types = (const char *const[]){"phimoe", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV,
              NAMES_LLAMA_O, [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              NAMES_BLOCK_SPARSE_EXPERTS},
    .configure = configure,
};
