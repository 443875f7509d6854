/* Tencent's Hy3: per-head QK norm, a sigmoid router with a selection bias, a shared expert. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 11158840});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    config_only(c, "mlp_bias", false);
    s->qk_norm = QK_NORM_HEAD;
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = true;
    config_deepseek_moe(c, s);
    if (s->moe.shared_ffn == 0)
        config_fail(c, "`num_shared_experts` must be positive");
    s->moe.renormalise = true;
    s->moe.scale = (float)config_num_or(c, "router_scaling_factor", 2.826);
    config_mlp_layer_types(c, s, 1);
}

const struct arch arch_hy_v3 = {
    .types = (const char *const[]){"hy_v3", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA,
              NAMES_QK_NORM, [W_ROUTER] = "model.layers.*.mlp.router.gate|model.layers.*.mlp.gate",
              [W_SELECT_BIAS] = "model.layers.*.mlp.expert_bias|"
                                "model.layers.*.mlp.e_score_correction_bias",
              [W_MOE_GATE] = "model.layers.*.mlp.experts.*.gate_proj",
              [W_MOE_UP] = "model.layers.*.mlp.experts.*.up_proj",
              [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_DOWN] = "model.layers.*.mlp.experts.down_proj|"
                             "model.layers.*.mlp.experts.*.down_proj",
              [W_SHARED_GATE] = "model.layers.*.mlp.shared_mlp.gate_proj|"
                                "model.layers.*.mlp.shared_experts.gate_proj",
              [W_SHARED_UP] = "model.layers.*.mlp.shared_mlp.up_proj|"
                              "model.layers.*.mlp.shared_experts.up_proj",
              [W_SHARED_DOWN] = "model.layers.*.mlp.shared_mlp.down_proj|"
                                "model.layers.*.mlp.shared_experts.down_proj"},
    .configure = configure,
};
