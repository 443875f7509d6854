/* K-EXAONE: EXAONE 4 with pre-norms and DeepSeek's router. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-5, .rope_theta = 1000000});
    s->act = config_act(c, "hidden_act", "silu");
    s->qk_norm = QK_NORM_HEAD;
    config_windows(c, s, 4096, config_pattern_layer);
    config_rotate_windows(s);
    config_only_word(c, "scoring_func", "sigmoid");
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = s->moe.group_pairs = true;
    config_deepseek_moe(c, s);
    config_mlp_layer_types(c, s, config_u32_or(c, "first_k_dense_replace", 1, 0, SPEC_MAX_LAYERS));
}

const struct arch arch_exaone_moe = {
    .types = (const char *const[]){"exaone_moe", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS, NAMES_SHARED_EXPERTS, NAMES_QK_NORM,
              [W_SELECT_BIAS] = "model.layers.*.mlp.e_score_correction_bias|"
                                "model.layers.*.mlp.gate.e_score_correction_bias"},
    .configure = configure,
};
