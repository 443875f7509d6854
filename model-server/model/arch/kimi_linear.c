/* Kimi Linear (arXiv 2510.26692): Kimi Delta Attention (a gated delta rule with a decay per key
 * channel), among these layers latent attention without RoPE; DeepSeek's experts. The text model of
 * Kimi K3: sublayers that read a blend of earlier blocks of layers, a lower bound on the decay,
 * output gates on latent attention, experts of a narrower width, soft-capped activations. */
#include "common/json/json.h"
#include "model-server/backend/act.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Layers in a list of the hub's files, which count from 1. */
static void set_layers(struct config *c, struct decoder_spec *s, const char *key,
                       enum mixer_kind mixer)
{
    const cJSON *n, *list = json_get(json_get(c->root, "linear_attn_config"), key);
    cJSON_ArrayForEach(n, list)
    {
        if (!cJSON_IsNumber(n) || n->valuedouble < 1 || n->valuedouble > s->n_layers)
            config_fail(c, "`%s` must be numbers of layers from 1 on", key);
        else
            s->layers[(uint32_t)n->valuedouble - 1].mixer = mixer;
    }
}

static bool not_every_fourth(struct config *c, uint32_t layer)
{
    return (void)c, layer == 0 || layer % 4 != 0;
}

static void mixers(struct config *c, struct decoder_spec *s)
{
    const cJSON *own = json_get(c->root, "linear_attn_config");
    config_mixers(c, s, MIXER_DELTA, not_every_fourth);
    if (!json_get(c->root, "layer_types") && json_get(own, "kda_layers") &&
        json_get(own, "full_attn_layers")) {
        for (uint32_t i = 0; i < s->n_layers; i++)
            s->layers[i].mixer = MIXER_NONE;
        set_layers(c, s, "kda_layers", MIXER_DELTA);
        set_layers(c, s, "full_attn_layers", MIXER_ATTENTION);
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        if (s->layers[i].mixer == MIXER_NONE)
            config_fail(c, "layer %u is in neither list of `linear_attn_config`", i + 1);
        if (s->layers[i].mixer == MIXER_ATTENTION)
            s->layers[i].mixer = MIXER_MLA;
    }
}

static void latent(struct config *c, struct decoder_spec *s)
{
    config_latent(c, s, 0, 128);
    config_only(c, "mla_use_nope", true);
    config_only(c, "attention_bias", false);
    if (config_bool_or(c, "mla_use_output_gate", false))
        s->attn_gate = ATTN_GATE_APART;
    /* a part of each key that all heads share, but whose angles are 0 */
    s->rope[0] = (struct rope_spec){
        .kind = ROPE_PARTIAL, .dim = s->mla.rope, .theta = 10000, .attention_factor = 1};
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = spec_head_scale(s);
}

/* DeepSeek's router. */
static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    config_only_word(c, "moe_router_activation_func", "sigmoid");
    if (config_u32_or(c, "moe_layer_freq", 1, 1, SPEC_MAX_LAYERS) != 1)
        config_fail(c, "`moe_layer_freq`: only 1 is supported");
    m->score = MOE_SIGMOID;
    m->select_bias = m->group_pairs = true;
    config_deepseek_moe(c, s);
    m->scale = (float)config_num_or(c, "routed_scaling_factor", 2.446);
    m->shared_ffn =
        m->ffn *
        config_u32_or(c, config_either(c, "num_shared_experts", "n_shared_experts"), 1, 0, 64);
    config_mlp_layer_types(c, s, config_u32_or(c, "first_k_dense_replace", 1, 0, SPEC_MAX_LAYERS));
}

/* Kimi K3 has the same model_type. Experts read a projection of the input, and another one makes
 * the result of the norm of their sum. */
static void narrow_experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    m->latent = config_u32_or(c, "routed_expert_hidden_size", 0, 4, 1u << 22);
    m->latent_norm_last = config_bool_or(c, "latent_moe_use_norm", false);
    if (m->latent % 4)
        config_fail(c, "`routed_expert_hidden_size` must be a multiple of 4");
    if (m->latent_norm_last && !m->latent)
        config_fail(c, "`latent_moe_use_norm` needs `routed_expert_hidden_size`");
}

/* Sublayers read blends of the streams of earlier blocks. */
static void blends(struct config *c, struct decoder_spec *s)
{
    const char *key = "attn_res_block_size";
    if (!json_get(c->root, key) || cJSON_IsNull(json_get(c->root, key)))
        return;
    s->blend_product = true;
    s->blend_per = config_u32(c, key, 1, SPEC_MAX_LAYERS);
    if (!c->failed && (s->n_layers - 1) / s->blend_per + 2 > BLEND_MOST)
        config_fail(c, "`%s` %u: too many blocks of %u layers", key, s->blend_per, s->n_layers);
}

/* The delta layers: a floor of decays, and z of one matrix. */
static void delta(struct config *c, struct decoder_spec *s)
{
    cJSON *const root = c->root;
    config_kimi_delta(c, s, 32);
    const cJSON *own = config_object(c, root, "linear_attn_config");
    if (!own)
        return;
    c->root = (cJSON *)(uintptr_t)own;
    s->recur.whole_z = config_bool_or(c, "use_full_rank_gate", false);
    s->recur.decay_floor = (float)config_num_or(c, "gate_lower_bound", 0);
    if (s->recur.decay_floor > 0)
        config_fail(c, "`gate_lower_bound` must be below 0");
    c->root = root;
}

static void activation(struct config *c, struct decoder_spec *s)
{
    if (strcmp(config_str_or(c, "hidden_act", "silu"), "situ") != 0) {
        s->act = config_act(c, "hidden_act", "silu");
        return;
    }
    config_only_num(c, "activation_situ_beta", 1, (double)SOFT_GATE);
    config_only_num(c, "activation_situ_linear_beta", 0, (double)SOFT_UP);
    s->act = ACT_SILU_SOFT;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.head_dim = 64, .max_positions = 1048576, .norm_eps = 1e-5});
    if (json_get(c->root, "model_max_length"))
        s->max_positions = config_u32(c, "model_max_length", 1, UINT32_MAX);
    activation(c, s);
    delta(c, s);
    latent(c, s);
    mixers(c, s);
    experts(c, s);
    narrow_experts(c, s);
    blends(c, s);
}

/* transformers saves dense layers under the name of the experts. */
#define KIMI_MLP(of) "model.layers.*.mlp." of "|model.layers.*.block_sparse_moe." of
/* In memory transformers has the decay in a module of its own, and one convolution. */
#define KIMI_DECAY(of) "model.layers.*.self_attn.forget_gate." of "|model.layers.*.self_attn." of

const struct arch arch_kimi_linear = {
    .types = (const char *const[]){"kimi_linear", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER,
              NAMES_LLAMA_QKV,
              NAMES_LLAMA_O,
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_GATE] = KIMI_MLP("gate_proj"),
              [W_UP] = KIMI_MLP("up_proj"),
              [W_DOWN] = KIMI_MLP("down_proj"),
              NAMES_BLOCK_SPARSE_EXPERTS,
              [W_SELECT_BIAS] = KIMI_MLP("gate.e_score_correction_bias"),
              [W_SHARED_GATE] = KIMI_MLP("shared_experts.gate_proj"),
              [W_SHARED_UP] = KIMI_MLP("shared_experts.up_proj"),
              [W_SHARED_DOWN] = KIMI_MLP("shared_experts.down_proj"),
              [W_Q_A] = "model.layers.*.self_attn.q_a_proj",
              [W_Q_A_NORM] = "model.layers.*.self_attn.q_a_layernorm",
              [W_Q_B] = "model.layers.*.self_attn.q_b_proj",
              [W_KV_A] = "model.layers.*.self_attn.kv_a_proj_with_mqa",
              [W_KV_A_NORM] = "model.layers.*.self_attn.kv_a_layernorm",
              [W_KV_B] = "model.layers.*.self_attn.kv_b_proj",
              NAMES_DELTA_CONVS("model.layers.*.self_attn."),
              [W_MIX_CONV] = "model.layers.*.self_attn.conv1d",
              [W_MIX_BETA] = "model.layers.*.self_attn.b_proj",
              [W_MIX_DECAY_DOWN] = KIMI_DECAY("f_a_proj"),
              [W_MIX_DECAY_UP] = KIMI_DECAY("f_b_proj"),
              [W_MIX_Z_DOWN] = "model.layers.*.self_attn.g_a_proj",
              [W_MIX_Z_UP] = "model.layers.*.self_attn.g_b_proj",
              [W_MIX_Z] = "model.layers.*.self_attn.g_proj",
              [W_ATTN_GATE] = "model.layers.*.self_attn.g_proj",
              [W_MOE_LATENT_IN] = KIMI_MLP("routed_expert_down_proj"),
              [W_MOE_LATENT_OUT] = KIMI_MLP("routed_expert_up_proj"),
              [W_MOE_LATENT_NORM] = KIMI_MLP("routed_expert_norm"),
              [W_BLEND] = "model.layers.*.self_attention_res_proj.weight",
              [W_BLEND_NORM] = "model.layers.*.self_attention_res_norm.weight",
              [W_BLEND_FFN] = "model.layers.*.mlp_res_proj.weight",
              [W_BLEND_FFN_NORM] = "model.layers.*.mlp_res_norm.weight",
              [W_BLEND_LAST] = "model.output_attn_res_proj.weight",
              [W_BLEND_LAST_NORM] = "model.output_attn_res_norm.weight",
              [W_MIX_RATE] = KIMI_DECAY("A_log"),
              [W_MIX_DT] = KIMI_DECAY("dt_bias"),
              [W_MIX_NORM] = "model.layers.*.self_attn.o_norm.weight"},
    .configure = configure,
};
