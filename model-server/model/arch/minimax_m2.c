/* MiniMax M2: QK norm over all heads together, a sigmoid router with a selection bias. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 196608, .norm_eps = 1e-6});
    s->act = config_act(c, "hidden_act", "silu");
    s->rope[0].dim =
        config_u32_or(c, "rotary_dim", config_rotary_dim(c, s->head_dim, 1), 2, s->head_dim);
    config_rope(c, s, 5000000);
    s->qk_norm = config_bool_or(c, "use_qk_norm", true) ? QK_NORM_ALL : QK_NORM_NONE;
    config_moe(c, s, 256, 8);
    s->moe.ffn = s->ffn;
    s->moe.score = MOE_SIGMOID;
    s->moe.renormalise = true;
    config_only_word(c, "scoring_func", "sigmoid");
    s->moe.select_bias = config_bool_or(c, "use_routing_bias", true);
    config_moe_layers(s);
}

const struct arch arch_minimax_m2 = {
    .types = (const char *const[]){"minimax_m2", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_QK_NORM, NAMES_BLOCK_SPARSE_EXPERTS,
              [W_SELECT_BIAS] = "model.layers.*.mlp.e_score_correction_bias|"
                                "model.layers.*.mlp.gate.e_score_correction_bias|"
                                "model.layers.*.block_sparse_moe.e_score_correction_bias"},
    .configure = configure,
};
