/* Ling 1, 1.5 and 2 (arXiv 2503.05139; model_type bailing_moe in all of them), Sarvam 30B, and
 * Param 2 (BharatGen): Llama's layers with q, k and v in one matrix and experts; from Ling 2 on
 * with DeepSeek's router. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The first models choose by softmax, without groups, bias and factor. */
static void experts(struct config *c, struct decoder_spec *s, const char *type)
{
    const bool param = strcmp(type, "param2moe") == 0, sarvam = strcmp(type, "sarvam_moe") == 0;
    const char *usual = param ? "sigmoid" : "softmax";
    const bool sigmoid =
        sarvam || strcmp(config_str_or(c, "score_function", usual), "sigmoid") == 0;
    config_deepseek_moe(c, s);
    s->moe.score = sigmoid ? MOE_SIGMOID : MOE_SOFTMAX;
    s->moe.group_pairs = sigmoid;
    s->moe.select_bias = sigmoid && config_bool_or(c, "moe_router_enable_expert_bias", true);
    const char *key = "moe_shared_expert_intermediate_size";
    if (s->moe.shared_ffn && json_get(c->root, key))
        s->moe.shared_ffn = (param ? 1 : s->moe.shared_ffn / s->moe.ffn) * config_dim(c, key);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *type = json_str(c->root, "model_type", "");
    const bool sarvam = strcmp(type, "sarvam_moe") == 0;
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 16384,
                                             .norm_eps = sarvam ? 1e-6 : 1e-5,
                                             .rope_theta = sarvam ? 8000000 : 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->qkv = QKV_STACKED;
    const bool all = config_bool_or(c, "use_bias", false);
    s->bias.qkv =
        all || config_bool_or(c, "use_qkv_bias", config_bool_or(c, "attention_bias", false));
    s->bias.o = all;
    config_only(c, "norm_head", false); /* it would normalise the rows of the head */
    if (config_bool_or(c, "use_qk_norm", sarvam))
        s->qk_norm = QK_NORM_HEAD;
    experts(c, s, type);
}

const struct arch arch_bailing_moe = {
    .types =
        (const char *const[]){"bailing_moe", "bailing_moe_v2", "sarvam_moe", "param2moe", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_MLP, NAMES_EXPERTS, NAMES_SHARED_EXPERTS,
              [W_EMBED] = "model.embed_tokens|model.word_embeddings", [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head", [W_ATTN_NORM] = "model.layers.*.input_layernorm",
              [W_QKV] = "model.layers.*.attention.query_key_value",
              /* in GGUF files of Ling 1 each matrix is there alone, and in transformers' memory */
              [W_Q] = "model.layers.*.self_attn.q_proj|model.layers.*.attention.q",
              [W_K] = "model.layers.*.self_attn.k_proj|model.layers.*.attention.k",
              [W_V] = "model.layers.*.self_attn.v_proj|model.layers.*.attention.v",
              [W_O] = "model.layers.*.self_attn.o_proj|model.layers.*.attention.dense",
              [W_Q_NORM] =
                  "model.layers.*.self_attn.q_norm|model.layers.*.attention.query_layernorm",
              [W_K_NORM] = "model.layers.*.self_attn.k_norm|model.layers.*.attention.key_layernorm",
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias|"
                                "model.layers.*.mlp.gate.expert_bias"},
    .configure = configure,
};
