/* ZAYA (Zyphra): compressed convolutional attention (arXiv 2510.04476); one expert or none per
 * token, chosen by an MLP router whose hidden state accumulates over the layers; a residual stream
 * with learned scales. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <math.h>
#include <string.h>

/* The rotation of a kind of layer, if rope_parameters has one for each. */
static const cJSON *rotation_of(struct config *c, const char *kind)
{
    const cJSON *all = config_object(c, c->root, "rope_parameters");
    const cJSON *own = config_object(c, all, kind);
    const bool nested = json_get(all, "hybrid") || json_get(all, "hybrid_sliding");
    return own ? own : nested ? NULL : all;
}

static void rotation(struct config *c, struct decoder_spec *s, const char *kind, double theta,
                     struct rope_spec *r)
{
    const cJSON *set = rotation_of(c, kind);
    const char *word = json_str(set, "rope_type", "default");
    *r = (struct rope_spec){.kind = ROPE_DEFAULT, .attention_factor = 1};
    r->theta = json_num(set, "rope_theta", theta);
    r->dim = config_rotary_part(c, s->head_dim, json_num(set, "partial_rotary_factor", 0.5));
    if (strcmp(word, "default") != 0)
        config_fail(c, "rope type `%.40s` is not supported in this family", word);
    if (!(r->theta > 1 && isfinite(r->theta)))
        config_fail(c, "`rope_theta` must be above 1");
}

static void layers(struct config *c, struct decoder_spec *s)
{
    const cJSON *j = config_layer_list(c, s, "layer_types");
    const uint32_t window = config_u32_or(c, "sliding_window", 0, 0, 1u << 30);
    for (uint32_t i = 0; i < s->n_layers; i++, j = j ? j->next : NULL) {
        const char *kind = j && cJSON_IsString(j) ? j->valuestring : "hybrid";
        const bool slides = strcmp(kind, "hybrid_sliding") == 0;
        s->layers[i].mixer = MIXER_CCA;
        s->layers[i].rope = slides ? 1 : 0;
        s->layers[i].window = slides ? window : 0;
        if (!slides && strcmp(kind, "hybrid") != 0)
            config_fail(c, "`layer_types`: %.40s is not supported", kind);
        if (slides && !window)
            config_fail(c, "`sliding_window` must be above 0");
    }
}

static void experts(struct config *c, struct decoder_spec *s)
{
    config_moe(c, s, 16, 1);
    s->ffn = s->moe.ffn = config_u32_or(c, "moe_intermediate_size", 2048, 1, 1u << 22);
    s->moe.router_width = config_u32_or(c, "router_hidden_size", 256, 1, 1u << 16);
    s->moe.n_zero = 1; /* a token that is not changed */
    s->moe.zero_nothing = true;
    s->moe.renormalise = false;
    s->moe.select_bias = true;
    config_moe_layers(s);
    if (s->moe.top_k != 1)
        config_fail(c, "`num_experts_per_tok` must be 1");
    if (s->moe.router_width > s->hidden)
        config_fail(c, "`router_hidden_size` is above `hidden_size`");
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 128,
                                             .max_positions = 131072,
                                             .norm_eps = 1e-5,
                                             .layers = 40,
                                             .heads = 8,
                                             .kv_heads = 2,
                                             .vocab = 262272,
                                             .ffn_by_layer = true,
                                             .tied = true});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.head = config_bool_or(c, "lm_head_bias", false);
    s->affine = true;
    s->cca.first = config_u32_or(c, "cca_time0", 2, 1, CONV_MOST);
    s->cca.second = config_u32_or(c, "cca_time1", 2, 1, CONV_MOST);
    if (s->cca.first + s->cca.second > CONV_MOST + 1)
        config_fail(c, "`cca_time0` and `cca_time1` are above %d together", CONV_MOST + 1);
    if (s->n_kv_heads * s->head_dim % 2)
        config_fail(c, "values of %u numbers have no halves", s->n_kv_heads * s->head_dim);
    rotation(c, s, "hybrid", 5e6, &s->rope[0]);
    rotation(c, s, "hybrid_sliding", 1e4, &s->rope[1]);
    layers(c, s);
    experts(c, s);
}

#define CCA    "model.layers.*.self_attn.qkv_proj."
#define GATE   "model.layers.*.mlp.gate."
#define MIXED  "model.layers.*.post_attention_residual_scale."
#define PASSED "model.layers.*.post_mlp_residual_scale."
const struct arch arch_zaya = {
    .types = (const char *const[]){"zaya", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER,
              NAMES_LLAMA_O,
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_Q] = CCA "q_proj",
              [W_K] = CCA "k_proj",
              [W_V] = CCA "v_proj_current",
              [W_V_LATE] = CCA "v_proj_delayed",
              [W_MIX_CONV] = CCA "conv_qk_depthwise",
              [W_MIX_CONV_HEADS] = CCA "conv_qk_grouped",
              [W_K_SCALE] = "model.layers.*.self_attn.qk_norm.temp",
              [W_ROUTER_IN] = GATE "down_proj",
              [W_ROUTER_CARRY] = GATE "router_states_scale",
              [W_ROUTER_NORM] = GATE "router_mlp.norm",
              [W_ROUTER_FIRST] = GATE "router_mlp.fc1",
              [W_ROUTER_SECOND] = GATE "router_mlp.fc2",
              [W_ROUTER] = GATE "router_mlp.out_proj",
              [W_SELECT_BIAS] = GATE "balancing_biases",
              [W_MOE_GATE] = "model.layers.*.mlp.experts.*.gate_proj",
              [W_MOE_UP] = "model.layers.*.mlp.experts.*.up_proj",
              [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_DOWN] = "model.layers.*.mlp.experts.down_proj|"
                             "model.layers.*.mlp.experts.*.down_proj",
              [W_STREAM_KEEP_FIRST] = "model.input_hidden_states_scale",
              [W_STREAM_KEEP_FIRST_BIAS] = "model.input_hidden_states_bias",
              [W_STREAM_KEEP] = MIXED "residual_scale",
              [W_STREAM_KEEP_BIAS] = MIXED "residual_bias",
              [W_STREAM_ADD] = MIXED "hidden_states_scale",
              [W_STREAM_ADD_BIAS] = MIXED "hidden_states_bias",
              [W_STREAM_KEEP_FFN] = PASSED "residual_scale",
              [W_STREAM_KEEP_FFN_BIAS] = PASSED "residual_bias",
              [W_STREAM_ADD_FFN] = PASSED "hidden_states_scale",
              [W_STREAM_ADD_FFN_BIAS] = PASSED "hidden_states_bias"},
    .configure = configure,
};
