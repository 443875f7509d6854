/* Muse Spark (Meta), the text model: Muse Glimmer's attention with a norm before its output gate; a
 * residual stream with learned per-element gates between the stream and each addition; experts with
 * a projection to a narrower width, and separate norms of their outputs. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

/* Every fourth layer, counted from the last one, has no window. */
static bool has_window(struct config *c, uint32_t layer)
{
    const double n = json_num(c->root, "num_hidden_layers", 0);
    return ((uint32_t)n - 1 - layer) % 4 != 0;
}

static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    m->n_experts = config_u32_or(c, "num_local_experts", 256, 1, 65536);
    m->top_k = config_u32_or(c, "num_experts_per_tok", 8, 1, 65536);
    m->ffn = config_u32_or(c, "moe_intermediate_size", 4096, 1, 1u << 22);
    m->latent = config_u32_or(c, "moe_hidden_size", 4096, 1, 1u << 22);
    m->latent_norm = m->select_bias = m->renormalise = true;
    m->result_eps = s->norm.post_eps;
    m->score = MOE_SIGMOID;
    m->router_by = s->logit_scale;
    m->scale = (float)config_num_or(c, "routed_scaling_factor", 1);
    config_check_moe(c, s);
    config_mlp_layer_types(c, s, 0);
}

/* A number above 0. */
static float positive(struct config *c, const char *key, double def)
{
    const double x = config_num_or(c, key, def);
    if (!(x > 0))
        config_fail(c, "`%s` must be above 0", key);
    return (float)x;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 64,
                                             .max_positions = 1048576,
                                             .norm_eps = 1e-5,
                                             .rope_theta = 500000,
                                             .ffn = 16384});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->norm.plus = 1;
    s->norm.post_eps = positive(c, "post_norm_eps", 1e-8);
    s->norm.plain_ends = s->embed_norm = true;
    s->qk_norm = QK_NORM_PLAIN;
    s->qk_norm_still = true;
    s->attn_gate = ATTN_GATE_APART;
    s->attn_gate_norm = true;
    s->balance = positive(c, "residual_gate_temperature", 0.3);
    config_windows(c, s, 2048, has_window);
    config_layer_thetas(c, s, has_window);
    const float scale = (float)config_num_or(c, "qk_scale_factor", 5.4730064863875);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = scale * spec_head_scale(s);
    s->logit_scale = positive(c, "output_multiplier", 0.1767766952966369);
    s->logit_softcap = (float)config_softcap(c, "final_logit_softcapping", 20);
    experts(c, s);
}

const struct arch arch_muse_spark = {
    .types = (const char *const[]){"muse_spark_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_GATED_MLP,
              NAMES_EXPERTS, [W_MLP_NORM] = "model.layers.*.pre_feedforward_layernorm",
              [W_ATTN_GATE] = "model.layers.*.self_attn.gate_proj",
              [W_BALANCE] = "model.layers.*.post_attention_residual_gate.gate",
              [W_BALANCE_FFN] = "model.layers.*.post_feedforward_residual_gate.gate",
              [W_BALANCE_FFN_NORM] = "model.layers.*.post_feedforward_layernorm",
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias",
              [W_MOE_LATENT_IN] = "model.layers.*.mlp.pre_expert_proj",
              [W_MOE_LATENT_OUT] = "model.layers.*.mlp.post_expert_proj",
              [W_MOE_LATENT_NORM] = "model.layers.*.mlp.pre_expert_norm",
              [W_MOE_RESULT_NORM] = "model.layers.*.mlp.experts.post_expert_norm"},
    .configure = configure,
};
