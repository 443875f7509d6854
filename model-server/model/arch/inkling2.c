/* Inkling 2 (Thinking Machines), the text model: Inkling with sublayers that read a learned blend
 * of earlier blocks of layers; clipped head norms, per-token attention sinks and an output gate on
 * attention; layers without a window read three blends, and compute convolution weights from each
 * token; experts with soft-capped activations. */
#include "common/json/json.h"
#include "model-server/backend/act.h"
#include "model-server/model/arch.h"
#include <math.h>
#include <string.h>

static void layers(struct config *c, struct decoder_spec *s)
{
    const cJSON *j = config_layer_list(c, s, "layer_types");
    const uint32_t window = config_u32_or(c, "sliding_window", 1024, 1, 1u << 24);
    const struct layer_spec full = {
        .mixer = MIXER_PROFILES,
        .rope = SPEC_NO_ROPE,
        .profiles = config_u32_or(c, "rel_extent", 1024, 1, 1u << 24),
        .apart_inputs = true,
        .q_grows = true,
        .attn_scale = spec_head_scale(s),
    };
    struct layer_spec local = full;
    local.n_heads = config_u32_or(c, "swa_num_attention_heads", 48, 1, 65536);
    local.n_kv_heads = config_u32_or(c, "swa_num_key_value_heads", 8, 1, 65536);
    local.head_dim = config_u32_or(c, "swa_head_dim", 128, 1, ROPE_MAX_DIM);
    local.window = local.profiles = window;
    local.apart_inputs = local.q_grows = false;
    local.attn_scale = 1 / sqrtf((float)local.head_dim);
    if (local.n_heads % local.n_kv_heads)
        config_fail(c, "%u key-value heads do not divide %u heads", local.n_kv_heads,
                    local.n_heads);
    for (uint32_t i = 0; i < s->n_layers; i++, j = j ? j->next : NULL) {
        const char *kind = j && cJSON_IsString(j) ? j->valuestring : "";
        const bool slides = j ? strcmp(kind, "hybrid_sliding") == 0 : (i + 1) % 6 != 0;
        if (j && !slides && strcmp(kind, "hybrid") != 0)
            config_fail(c, "`layer_types`: %.40s is not supported", kind);
        s->layers[i] = slides ? local : full;
    }
}

static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    m->ffn = s->ffn;
    m->n_experts = config_u32_or(c, "num_local_experts", 384, 1, 65536);
    m->top_k = config_u32_or(c, "num_experts_per_tok", 8, 1, 65536);
    m->score = MOE_SIGMOID;
    m->select_bias = m->renormalise = true;
    m->scale = (float)config_num_or(c, "routed_scaling_factor", 8);
    config_only_word(c, "scoring_func", "sigmoid");
    config_only_num(c, "mlp_gate_softcap", (double)SOFT_GATE, (double)SOFT_GATE);
    config_only_num(c, "mlp_up_softcap", (double)SOFT_UP, (double)SOFT_UP);
    config_check_moe(c, s);
    config_moe_layers(s);
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
                   &(struct config_defaults){
                       .head_dim = 128, .max_positions = 1048576, .norm_eps = 1e-6, .ffn = 2304});
    config_only_word(c, "hidden_act", "silu");
    s->act = ACT_SILU_SOFT;
    s->embed_norm = s->result_convs = s->v_norm = true;
    s->attn_gate = ATTN_GATE_APART;
    s->recur.conv = config_u32_or(c, "conv_kernel_size", 4, 2, CONV_MOST);
    s->profiles.dim = config_u32_or(c, "d_rel", 16, 1, 4096);
    s->profiles.clip = positive(c, "qk_l2_clip_threshold", 22.627416997969522);
    s->profiles.mix_clip = positive(c, "rel_l2_clip_threshold", 8);
    s->q_growth = (struct q_growth){.beta = config_num_or(c, "log_scaling_alpha", 0.1),
                                    .length = positive(c, "log_scaling_n_floor", 128000),
                                    .after = 1,
                                    .beyond = true};
    layers(c, s);
    s->blend_per = config_u32_or(c, "n_layers_per_attn_res_block", 6, 1, SPEC_MAX_LAYERS);
    if ((s->n_layers - 1) / s->blend_per + 2 > BLEND_MOST)
        config_fail(c, "`n_layers_per_attn_res_block` %u: too many blocks of %u layers",
                    s->blend_per, s->n_layers);
    experts(c, s);
    s->logit_softcap = (float)config_softcap(c, "final_logit_softcapping", 30);
    config_unpadded(c, s, 200058);
}

static const struct config_key keys[] = {{"sliding_window", "sliding_window_size", false},
                                         {"num_local_experts", "n_routed_experts", false},
                                         {"conv_kernel_size", "sconv_kernel_size", false},
                                         {"max_position_embeddings", "model_max_length", false},
                                         {"intermediate_size", "moe_intermediate_size", false},
                                         {"routed_scaling_factor", "route_scale", false},
                                         {NULL, NULL, false}};

/* The names of transformers, then those of the repository. */
#define NAME(v5, hub) "model.layers.*." v5 "|model.llm.layers.*." hub
#define ATTN(v5, hub) NAME("self_attn." v5, "attn." hub)
#define MLP(v5, hub)  NAME("mlp." v5, "mlp." hub)

const struct arch arch_inkling2 = {
    .types = (const char *const[]){"inkling2_text", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens|model.llm.embed",
              [W_EMBED_NORM] = "model.embed_tokens.embed_norm|model.llm.embed_norm",
              [W_FINAL_NORM] = "model.norm|model.llm.norm",
              [W_HEAD] = "lm_head|model.llm.unembed",
              [W_BLEND] = "model.layers.*.attention_input.query",
              [W_BLEND_NEXT] = "model.llm.attn_res.attn_queries.*",
              [W_BLEND_FFN] = "model.layers.*.mlp_input.query|model.llm.attn_res.mlp_queries.*",
              [W_BLEND_LAST] = "model.final_input.query|model.llm.attn_res.output_query",
              [W_ATTN_NORM] = "model.layers.*.input_layernorm|model.layers.*.q_input_layernorm|"
                              "model.llm.layers.*.attn_norm|model.llm.layers.*.q_input_norm",
              [W_K_IN_NORM] = NAME("k_input_layernorm", "k_input_norm"),
              [W_V_IN_NORM] = NAME("v_input_layernorm", "v_input_norm"),
              [W_Q] = ATTN("q_proj.linear", "wq_du"),
              [W_K] = ATTN("k_proj.linear", "wk_dv"),
              [W_V] = ATTN("v_proj.linear", "wv_dv"),
              [W_O] = ATTN("o_proj.linear", "wo_ud"),
              [W_ATTN_GATE] = ATTN("o_proj.gate_proj", "gate_attn"),
              [W_Q_NORM] = ATTN("q_proj.norm.scale", "q_l2_clip.scale"),
              [W_SINKS] = ATTN("sink_proj", "attn_sink_proj"),
              [W_PROFILES] = ATTN("relative_position_bias.linear", "wr_du"),
              [W_PROFILE_BANK] = ATTN("relative_position_bias.proj", "rel_logits_proj.proj"),
              [W_PROFILE_SCALE] = ATTN("relative_position_bias.norm.scale", "rel_l2_clip.scale"),
              [W_MIX_CONV_K] = ATTN("k_proj.sconv.conv1d", "k_sconv"),
              [W_MIX_CONV_V] = ATTN("v_proj.sconv.conv1d", "v_sconv"),
              [W_STATIC_CONV_K] = ATTN("k_proj.sconv.static_weight", "k_sconv.static_w"),
              [W_STATIC_CONV_V] = ATTN("v_proj.sconv.static_weight", "v_sconv.static_w"),
              [W_CONV_TAPS_K] = ATTN("k_proj.sconv.weight_proj.weight", "k_sconv.weight_proj"),
              [W_CONV_TAPS_V] = ATTN("v_proj.sconv.weight_proj.weight", "v_sconv.weight_proj"),
              [W_POST_ATTN_CONV] = NAME("post_attention_convolution.conv1d", "attn_sconv"),
              [W_MLP_NORM] = NAME("post_attention_layernorm", "mlp_norm"),
              [W_ROUTER] = MLP("gate", "gate"),
              [W_SELECT_BIAS] = MLP("gate.e_score_correction_bias", "gate.bias"),
              [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_TURNS] = "model.llm.layers.*.mlp.experts.w13_weight",
              [W_MOE_GATE] = "model.layers.*.mlp.experts.*.gate_proj",
              [W_MOE_UP] = "model.layers.*.mlp.experts.*.up_proj",
              [W_MOE_DOWN] = MLP("experts.down_proj", "experts.w2_weight"),
              [W_POST_MLP_CONV] = NAME("post_mlp_convolution.conv1d", "mlp_sconv")},
    .keys = keys,
    .configure = configure,
};
