/* Kolibri 1 (Aleph Alpha): EXAONE 4's attention with norms before and after each sublayer. Router:
 * logits plus a bias select the experts, sigmoids weight them; a shared expert. */
#include "model-server/model/arch.h"

static bool all_but_every_fifth(struct config *c, uint32_t layer)
{
    return (void)c, (layer + 1) % 5 != 0;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 128,
                                             .max_positions = 262144,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .ffn = 512}); /* of no layer */
    s->act = config_act(c, "hidden_act", "silu");
    s->norms = NORM_AROUND;
    s->qk_norm = QK_NORM_HEAD;
    config_windows(c, s, 513, all_but_every_fifth);
    config_rotate_windows(s);
    config_moe(c, s, 384, 6);
    s->moe.ffn = config_u32_or(c, "moe_intermediate_size", 512, 1, 1u << 22);
    s->moe.shared_ffn = config_u32_or(c, "shared_expert_intermediate_size", 512, 1, 1u << 22);
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = s->moe.select_logits = true;
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", false);
    config_moe_layers(s);
}

const struct arch arch_kolibri1 = {
    .types = (const char *const[]){"kolibri1", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_QK_NORM, NAMES_EXPERTS,
              NAMES_SHARED_EXPERTS, [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_POST_ATTN_NORM] = "model.layers.*.post_attn_norm|"
                                   "model.layers.*.post_self_attn_layernorm",
              [W_POST_MLP_NORM] = "model.layers.*.post_ffn_norm|"
                                  "model.layers.*.post_mlp_layernorm",
              [W_SELECT_BIAS] = "model.layers.*.moe.router.expert_bias|"
                                "model.layers.*.mlp.gate.e_score_correction_bias"},
    .configure = configure,
};
