/* DeepSeek V2 (arXiv 2405.04434) and V3 (2412.19437), Kimi K2, Moonlight and GLM-4.7-Flash: latent
 * attention (MLA), and experts selected by groups with a bias; Sarvam 105B; A.X K1, with a norm of
 * the experts' output; Mistral 4, with queries scaled by position; MiniCPM 3, Youtu and PLM
 * (2503.12167) without experts, PLM with an ungated squared-ReLU MLP; DeepSeek V3.2 (2512.02556)
 * and GLM-5, with sparse attention selected by an indexer. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <math.h>
#include <string.h>

static const double INDEX_EPS = 1e-6;

static void latent(struct config *c, struct decoder_spec *s)
{
    const char *type = json_str(c->root, "model_type", "");
    const bool v2 = strcmp(type, "deepseek_v2") == 0, mini = strcmp(type, "minicpm3") == 0;
    const double m_all = config_rope_mscale(c);
    config_latent(c, s, 0, mini ? s->hidden / s->n_heads : 128);
    s->rope[0].interleaved = v2 || (!mini && config_bool_or(c, "rope_interleave", true));
    config_rope(c, s, 10000);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].mixer = MIXER_MLA;
        s->layers[i].attn_scale = spec_head_scale(s) * (float)(m_all * m_all);
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *type = json_str(c->root, "model_type", "");
    const bool v2 = strcmp(type, "deepseek_v2") == 0, lite = strcmp(type, "glm4_moe_lite") == 0;
    const bool axk = strcmp(type, "axk1") == 0, glm5 = strcmp(type, "glm_moe_dsa") == 0;
    const bool selects = glm5 || strcmp(type, "deepseek_v32") == 0;
    const bool mini = strcmp(type, "minicpm3") == 0, plm = strcmp(type, "plm") == 0;
    const bool dense = mini || plm || strcmp(type, "youtu") == 0;
    if (strcmp(type, "deepseek_v3") == 0)
        config_absent(c, "{\"q_lora_rank\":1536,\"n_group\":8,\"topk_group\":4,"
                         "\"n_shared_experts\":1,\"first_k_dense_replace\":3,"
                         "\"routed_scaling_factor\":2.5}");
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 64,
                                             .max_positions = lite || glm5 ? 202752
                                                              : selects    ? 163840
                                                              : v2         ? 2048
                                                                           : 4096,
                                             .norm_eps = lite || mini || glm5 ? 1e-5 : 1e-6,
                                             .tied = dense});
    s->act = config_act(c, "hidden_act", plm ? "relu2" : "silu");
    s->mlp = plm ? MLP_PLAIN : s->mlp;
    config_only(c, "attention_bias", false);
    if (config_u32_or(c, "moe_layer_freq", 1, 1, SPEC_MAX_LAYERS) != 1)
        config_fail(c, "`moe_layer_freq`: only 1 is supported");
    latent(c, s);
    if (selects)
        config_indexer(
            c, s,
            &(struct index_defaults){
                .heads = glm5 ? 32 : 64, .interleaved = glm5, .every = 1, .eps = INDEX_EPS});
    if (dense) {
        s->bias.mlp = config_bool_or(c, "mlp_bias", false);
        if (mini)
            config_minicpm_factors(c, s, sqrt(s->n_layers), s->hidden);
        return;
    }
    if (v2) {
        config_only(c, "mlp_bias", false);
        config_deepseek_v2_moe(c, s);
        return;
    }
    if (strcmp(type, "mistral4") == 0) {
        s->moe.score = MOE_SOFTMAX;
        s->moe.group_pairs = true;
        config_deepseek_moe(c, s);
        config_q_growth(c, s);
        return;
    }
    s->moe.score = MOE_SIGMOID;
    config_only_word(c, "scoring_func", "sigmoid");
    config_only_word(c, "topk_method", "noaux_tc");
    s->moe.select_bias = s->moe.group_pairs = true;
    config_deepseek_moe(c, s);
    if (lite)
        config_mlp_layer_types(c, s, 1);
    if (axk || selects)
        config_mlp_layer_types(
            c, s, config_u32_or(c, "first_k_dense_replace", axk ? 1 : 3, 0, SPEC_MAX_LAYERS));
    s->moe.bias_may_lack = axk;
    for (uint32_t i = 0; axk && i < s->n_layers; i++)
        s->layers[i].ffn_norm_after = s->layers[i].moe;
}

const struct arch arch_deepseek = {
    .types = (const char *const[]){"deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite",
                                   "minicpm3", "youtu", "plm", "sarvam_mla", "axk1", "mistral4",
                                   "deepseek_v32", "glm_moe_dsa", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_O, NAMES_LLAMA_MLP, NAMES_EXPERTS,
              NAMES_SHARED_EXPERTS, NAMES_LATENT, NAMES_INDEXER,
              [W_POST_MLP_NORM] = "model.layers.*.post_mlp_layernorm|"
                                  "model.layers.*.mlp.post_mlp_layernorm",
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias"},
    .configure = configure,
};
