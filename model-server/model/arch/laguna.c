/* Laguna (Poolside): attention with a number of heads that differs between layers, a per-head
 * output gate, sliding windows with their own RoPE. Router: sigmoid scores and a selection bias. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void heads(struct config *c, struct decoder_spec *s)
{
    const cJSON *j = config_layer_list(c, s, "num_attention_heads_per_layer");
    for (uint32_t i = 0; j && i < s->n_layers; i++, j = j->next) {
        const double n = cJSON_IsNumber(j) ? j->valuedouble : 0;
        if (!(n >= 1 && n <= 65536) || n != (uint32_t)n || (uint32_t)n % s->n_kv_heads) {
            config_fail(c, "`num_attention_heads_per_layer`: %g heads of layer %u", n, i);
            return;
        }
        s->layers[i].n_heads = (uint32_t)n;
    }
}

/* "per-head" is the default; the other word means a number for each element. */
static void gate(struct config *c, struct decoder_spec *s)
{
    const cJSON *j = json_get(c->root, "gating");
    const bool by_head =
        !j || cJSON_IsTrue(j) || (cJSON_IsString(j) && strcmp(j->valuestring, "per-head") == 0);
    if (!by_head)
        config_fail(c, "`gating`: only \"per-head\" is supported");
    s->attn_gate = ATTN_GATE_SOFTPLUS_BY_HEAD;
}

static void rotations(struct config *c, struct decoder_spec *s)
{
    const cJSON *set = json_get(c->root, "rope_parameters");
    const bool said = set || json_get(c->root, "rope_theta");
    s->rope[0].dim = config_rotary_dim(c, s->head_dim, said ? 1 : 0.5);
    config_rope(c, s, 500000);
    config_window_rope(c, s, config_num_or(c, "rope_local_base_freq", 10000));
    const double part = json_num(json_get(set, "sliding_attention"), "partial_rotary_factor", 1);
    s->rope[1].dim = config_rotary_part(c, s->head_dim, part);
}

static void experts(struct config *c, struct decoder_spec *s)
{
    config_only(c, "moe_apply_router_weight_on_input", false);
    if (config_num_or(c, "moe_router_logit_softcapping", 0) != 0)
        config_fail(c, "`moe_router_logit_softcapping` is not supported");
    config_moe(c, s, 256, 8);
    s->moe.ffn = config_u32_or(c, "moe_intermediate_size", 512, 1, 1u << 22);
    s->moe.shared_ffn = config_u32_or(c, "shared_expert_intermediate_size", 512, 1, 1u << 22);
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = s->moe.renormalise = true;
    s->moe.scale = (float)config_num_or(c, "moe_routed_scaling_factor", 1);
    config_mlp_layer_types(c, s, 1);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.head_dim = 128, .max_positions = 131072, .norm_eps = 1e-6});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = QK_NORM_HEAD;
    heads(c, s);
    gate(c, s);
    config_windows(c, s, 512, config_no_layer);
    rotations(c, s);
    experts(c, s);
}

const struct arch arch_laguna = {
    .types = (const char *const[]){"laguna", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS,
              NAMES_QK_NORM, [W_ATTN_GATE] = "model.layers.*.self_attn.g_proj",
              [W_SELECT_BIAS] = "model.layers.*.mlp.experts.e_score_correction_bias|"
                                "model.layers.*.mlp.gate.e_score_correction_bias",
              [W_SHARED_GATE] = "model.layers.*.mlp.shared_expert.gate_proj|"
                                "model.layers.*.mlp.shared_experts.gate_proj",
              [W_SHARED_UP] = "model.layers.*.mlp.shared_expert.up_proj|"
                              "model.layers.*.mlp.shared_experts.up_proj",
              [W_SHARED_DOWN] = "model.layers.*.mlp.shared_expert.down_proj|"
                                "model.layers.*.mlp.shared_experts.down_proj"},
    .configure = configure,
};
