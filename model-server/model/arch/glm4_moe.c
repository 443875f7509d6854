/* GLM-4.5 to 4.7 (arXiv 2508.06471), the text model of GLM-4.5V and 4.6V, dots.llm1 (arXiv
 * 2506.05767) and Solar Open: grouped-query attention with DeepSeek's router. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *type = json_str(c->root, "model_type", "");
    const bool dots = strcmp(type, "dots1") == 0, solar = strcmp(type, "solar_open") == 0;
    const bool seeing = strcmp(type, "glm4v_moe_text") == 0;
    if (!dots && !solar)
        config_absent(c, "{\"num_key_value_heads\":8,\"n_shared_experts\":1,"
                         "\"n_routed_experts\":128,\"first_k_dense_replace\":1}");
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 131072,
                                             .norm_eps = 1e-5,
                                             .rope_theta = solar ? 1000000 : 10000,
                                             .ffn = solar, /* it has no dense layers */
                                             .rotary = dots || solar ? 1 : 0.5});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = config_bool_or(c, "attention_bias", seeing);
    s->bias.o = dots && s->bias.qkv;
    if (dots || config_bool_or(c, "use_qk_norm", false))
        s->qk_norm = QK_NORM_HEAD;
    if (seeing && !s->rope[0].has_axes)
        config_fail(c, "rope `mrope_section` must be there");
    config_windows(c, s, 0, config_upper_layers);
    /* the file of dots.llm1 says the name of the method, which is of sigmoids */
    if (!dots || strcmp(config_str_or(c, "scoring_func", ""), "noaux_tc") != 0)
        config_only_word(c, "scoring_func", "sigmoid");
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = s->moe.group_pairs = true;
    config_deepseek_moe(c, s);
}

const struct arch arch_glm4_moe = {
    .types = (const char *const[]){"glm4_moe", "glm4v_moe_text", "dots1", "solar_open", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS, NAMES_SHARED_EXPERTS,
              NAMES_QK_NORM, [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias"},
    .configure = configure,
};
