/* DeepSeek V2 (arXiv 2405.04434) and V3 (2412.19437), Kimi K2, Moonlight and GLM-4.7-Flash: latent
 * attention, and experts that groups and a bias choose; Sarvam 105B; A.X K1, whose experts' result
 * is normalised; Mistral 4, whose queries grow with the position; MiniCPM 3 and Youtu without
 * experts; DeepSeek V3.2 (2512.02556) and GLM-5, whose indexers select what a token attends to. */
#include "common/json.h"
#include "model-server/model/arch.h"
#include <math.h>
#include <string.h>

static const double INDEX_EPS = 1e-6; /* of the norm of an indexer's keys */

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

/* True if layer i has an indexer of its own: without a list, by a word of F and S, or by a period.
 */
static bool indexes(struct config *c, const cJSON *word, uint32_t i)
{
    const cJSON *letters = cJSON_GetObjectItemCaseSensitive(c->root, "index_topk_pattern");
    const char *pattern = cJSON_IsString(letters) ? letters->valuestring : NULL;
    if (!word && letters && !pattern && !cJSON_IsNull(letters))
        config_fail(c, "`index_topk_pattern` must be a word of F and S");
    if (word)
        pattern = cJSON_IsString(word) ? word->valuestring : "";
    if (word && strcmp(pattern, "full") != 0 && strcmp(pattern, "shared") != 0)
        config_fail(c, "`indexer_types`: %.40s is not supported", pattern);
    if (word)
        return strcmp(pattern, "full") == 0;
    if (pattern && (strlen(pattern) <= i || !strchr("FS", pattern[i]))) {
        config_fail(c, "`index_topk_pattern` must have F or S for each layer");
        return true;
    }
    if (pattern)
        return pattern[i] == 'F';
    const uint32_t every = config_u32_or(c, "index_topk_freq", 1, 0, SPEC_MAX_LAYERS);
    const uint32_t from = config_u32_or(c, "index_skip_topk_offset", 2, 0, SPEC_MAX_LAYERS);
    return every < 2 || i < from || (i - from + 1) % every == 0;
}

/* Sparse attention; other layers than those with an indexer use the selection of the last one. */
static void indexer(struct config *c, struct decoder_spec *s, bool glm)
{
    struct index_spec *x = &s->mla.index;
    const cJSON *word = config_layer_list(c, s, "indexer_types");
    x->heads = config_u32_or(c, "index_n_heads", glm ? 32 : 64, 1, 4096);
    x->dim = config_u32_or(c, "index_head_dim", 128, 2, 4096);
    x->top = config_u32_or(c, "index_topk", 2048, 1, 1u << 20);
    x->interleaved = config_bool_or(c, "indexer_rope_interleave", glm);
    x->eps = (float)INDEX_EPS;
    if (x->dim < s->mla.rope)
        config_fail(c, "`index_head_dim` must be at least `qk_rope_head_dim`");
    if (!s->mla.q_rank)
        config_fail(c, "`q_lora_rank` is required: the indexer reads that product");
    for (uint32_t i = 0, own = 0; i < s->n_layers; i++, word = word ? word->next : NULL) {
        if (indexes(c, word, i))
            own = i + 1;
        else if (!own)
            config_fail(c, "`indexer_types`: the first layer must have an indexer");
        s->layers[i].top_of = own == i + 1 ? 0 : own;
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *type = json_str(c->root, "model_type", "");
    const bool v2 = strcmp(type, "deepseek_v2") == 0, lite = strcmp(type, "glm4_moe_lite") == 0;
    const bool axk = strcmp(type, "axk1") == 0, glm5 = strcmp(type, "glm_moe_dsa") == 0;
    const bool selects = glm5 || strcmp(type, "deepseek_v32") == 0;
    const bool mini = strcmp(type, "minicpm3") == 0, dense = mini || strcmp(type, "youtu") == 0;
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 64,
                                             .max_positions = lite || glm5 ? 202752
                                                              : selects    ? 163840
                                                              : v2         ? 2048
                                                                           : 4096,
                                             .norm_eps = lite || mini || glm5 ? 1e-5 : 1e-6,
                                             .tied = dense});
    s->act = config_act(c, "hidden_act", "silu");
    config_only(c, "attention_bias", false);
    if (config_u32_or(c, "moe_layer_freq", 1, 1, SPEC_MAX_LAYERS) != 1)
        config_fail(c, "`moe_layer_freq`: only 1 is supported");
    latent(c, s);
    if (selects)
        indexer(c, s, glm5);
    if (dense) {
        s->bias.mlp = config_bool_or(c, "mlp_bias", false);
        if (mini)
            config_minicpm_factors(c, s, sqrt(s->n_layers), s->hidden);
        return;
    }
    if (v2) {
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
                                   "minicpm3", "youtu", "sarvam_mla", "axk1", "mistral4",
                                   "deepseek_v32", "glm_moe_dsa", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_O, NAMES_LLAMA_MLP, NAMES_EXPERTS,
              NAMES_SHARED_EXPERTS, [W_Q] = "model.layers.*.self_attn.q_proj",
              [W_Q_A] = "model.layers.*.self_attn.q_a_proj",
              [W_Q_A_NORM] = "model.layers.*.self_attn.q_a_layernorm",
              [W_Q_B] = "model.layers.*.self_attn.q_b_proj",
              [W_KV_A] = "model.layers.*.self_attn.kv_a_proj_with_mqa",
              [W_KV_A_NORM] = "model.layers.*.self_attn.kv_a_layernorm",
              [W_KV_B] = "model.layers.*.self_attn.kv_b_proj",
              [W_INDEX_Q] = "model.layers.*.self_attn.indexer.wq_b",
              [W_INDEX_K] = "model.layers.*.self_attn.indexer.wk",
              [W_INDEX_K_NORM] = "model.layers.*.self_attn.indexer.k_norm",
              [W_INDEX_WEIGHTS] = "model.layers.*.self_attn.indexer.weights_proj",
              [W_POST_MLP_NORM] = "model.layers.*.post_mlp_layernorm|"
                                  "model.layers.*.mlp.post_mlp_layernorm",
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias"},
    .configure = configure,
};
