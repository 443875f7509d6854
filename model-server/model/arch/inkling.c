/* Inkling (Thinking Machines), the text model: attention without RoPE and with a relative position
 * bias that each query computes; sliding windows in most layers, with their own number of heads;
 * short convolutions over keys, values and the outputs of both sublayers; shared experts that are
 * scored together with the routed ones. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Layers with a window if there is no layer_types: those in local_layer_ids, or all but every
 * sixth. */
static bool slides(struct config *c, uint32_t layer)
{
    const cJSON *list = json_get(c->root, "local_layer_ids"), *j;
    if (!cJSON_IsArray(list))
        return (layer + 1) % 6 != 0;
    cJSON_ArrayForEach(j, list)
    {
        if (cJSON_IsNumber(j) && j->valuedouble == layer)
            return true;
    }
    return false;
}

static void layers(struct config *c, struct decoder_spec *s)
{
    const cJSON *j = config_layer_list(c, s, "layer_types");
    const uint32_t window = config_u32_or(c, "sliding_window", 512, 1, 1u << 24);
    const uint32_t extent = config_u32_or(c, "rel_extent", 1024, 1, 1u << 24);
    const struct layer_spec full = {.mixer = MIXER_PROFILES,
                                    .rope = SPEC_NO_ROPE,
                                    .profiles = extent,
                                    .attn_scale = 1 / (float)s->head_dim};
    struct layer_spec local = full;
    local.n_heads = config_u32_or(c, "swa_num_attention_heads", 64, 1, 65536);
    local.n_kv_heads = config_u32_or(c, "swa_num_key_value_heads", 16, 1, 65536);
    local.head_dim = config_u32_or(c, "swa_head_dim", 128, 1, ROPE_MAX_DIM);
    local.window = local.profiles = window;
    local.attn_scale = 1 / (float)local.head_dim;
    if (local.n_heads % local.n_kv_heads)
        config_fail(c, "%u key-value heads do not divide %u heads", local.n_kv_heads,
                    local.n_heads);
    for (uint32_t i = 0; i < s->n_layers; i++, j = j ? j->next : NULL) {
        const char *kind = j && cJSON_IsString(j) ? j->valuestring : "";
        const bool is_local = j ? strcmp(kind, "hybrid_sliding") == 0 : slides(c, i);
        if (j && !is_local && strcmp(kind, "hybrid") != 0)
            config_fail(c, "`layer_types`: %.40s is not supported", kind);
        s->layers[i] = is_local ? local : full;
    }
}

/* Queries and their biases grow with the position in layers without a window. */
static void growth(struct config *c, struct decoder_spec *s)
{
    const uint32_t from = config_u32_or(c, "log_scaling_n_floor", 0, 1, 1u << 30);
    if (!from)
        return;
    s->q_growth = (struct q_growth){.beta = config_num_or(c, "log_scaling_alpha", 0.1),
                                    .length = from,
                                    .after = 1,
                                    .beyond = true};
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].q_grows = !s->layers[i].window;
}

/* In files with dense_intermediate_size the other width is that of experts. */
static void widths(struct config *c, struct decoder_spec *s)
{
    const uint32_t dense = config_u32_or(c, "dense_intermediate_size", 0, 1, 1u << 22);
    s->moe.ffn = dense ? s->ffn : config_u32_or(c, "moe_intermediate_size", 3072, 1, 1u << 22);
    s->ffn = dense ? dense : s->ffn;
}

static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    widths(c, s);
    m->n_always = config_u32_or(c, "n_shared_experts", 2, 1, 64);
    m->n_experts = m->n_always + config_u32_or(c, "num_local_experts", 256, 1, 65536);
    m->top_k = m->n_always + config_u32_or(c, "num_experts_per_tok", 6, 1, 65536);
    m->score = MOE_SIGMOID;
    m->select_bias = m->renormalise = true;
    m->scale = (float)config_num_or(c, "route_scale", 8);
    config_only(c, "shared_expert_sink", true);
    config_check_moe(c, s);
    config_mlp_layer_types(c, s, config_u32_or(c, "dense_mlp_idx", 0, 0, SPEC_MAX_LAYERS));
    s->ffn_scale = true;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){
                       .head_dim = 128, .max_positions = 131072, .norm_eps = 1e-6, .ffn = 24576});
    s->act = config_act(c, "hidden_act", "silu");
    s->embed_norm = true;
    s->qk_norm = QK_NORM_HEAD;
    s->result_convs = true;
    s->recur.conv = config_u32_or(c, "conv_kernel_size", 4, 2, CONV_MOST);
    s->profiles.dim = config_u32_or(c, "d_rel", 16, 1, 4096);
    layers(c, s);
    growth(c, s);
    experts(c, s);
    s->logit_scale = 1 / (float)config_num_or(c, "logits_mup_width_multiplier", 24);
    config_unpadded(c, s, s->vocab);
}

static const struct config_key keys[] = {
    {"sliding_window", "sliding_window_size", false},
    {"num_local_experts", "n_routed_experts", false},
    {"conv_kernel_size", "sconv_kernel_size", false},
    {"max_position_embeddings", "model_max_length", false},
    {"logits_mup_width_multiplier", "embedding_multiplier", false},
    {NULL, NULL, false}};

/* The names of transformers, then those of the repository. */
#define NAME(v5, hub) "model.layers.*." v5 "|model.llm.layers.*." hub
#define ATTN(v5, hub) NAME("self_attn." v5, "attn." hub)
#define MLP(v5, hub)  NAME("mlp." v5, "mlp." hub)

const struct arch arch_inkling = {
    .types = (const char *const[]){"inkling_text", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens|model.llm.embed",
              [W_EMBED_NORM] = "model.embed_tokens.embed_norm|model.llm.embed_norm",
              [W_FINAL_NORM] = "model.norm|model.llm.norm",
              [W_HEAD] = "lm_head|model.llm.unembed",
              [W_ATTN_NORM] = NAME("input_layernorm", "attn_norm"),
              [W_Q] = ATTN("q_proj", "wq_du"),
              [W_K] = ATTN("k_proj", "wk_dv"),
              [W_V] = ATTN("v_proj", "wv_dv"),
              [W_O] = ATTN("o_proj", "wo_ud"),
              [W_Q_NORM] = ATTN("q_norm", "q_norm"),
              [W_K_NORM] = ATTN("k_norm", "k_norm"),
              [W_PROFILES] = ATTN("r_proj", "wr_du"),
              [W_PROFILE_BANK] = ATTN("rel_logits_proj.proj", "rel_logits_proj.proj"),
              [W_MIX_CONV_K] = ATTN("k_sconv.conv1d", "k_sconv"),
              [W_MIX_CONV_V] = ATTN("v_sconv.conv1d", "v_sconv"),
              [W_POST_ATTN_CONV] = NAME("attn_sconv.conv1d", "attn_sconv"),
              [W_MLP_NORM] = NAME("post_attention_layernorm", "mlp_norm"),
              [W_GATE] = "model.layers.*.mlp.gate_proj",
              [W_UP] = "model.layers.*.mlp.up_proj",
              [W_GATE_UP_TURNS] = "model.llm.layers.*.mlp.w13_dn",
              [W_DOWN] = MLP("down_proj", "w2_md"),
              [W_FFN_SCALE] =
                  "model.layers.*.mlp.gate.global_scale|model.layers.*.mlp.global_scale|"
                  "model.llm.layers.*.mlp.gate.global_scale|"
                  "model.llm.layers.*.mlp.global_scale",
              [W_ROUTER] = MLP("gate", "gate"),
              [W_SELECT_BIAS] = MLP("gate.e_score_correction_bias", "gate.bias"),
              [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_TURNS] = "model.llm.layers.*.mlp.experts.w13_weight",
              [W_MOE_GATE] = "model.layers.*.mlp.experts.*.gate_proj",
              [W_MOE_UP] = "model.layers.*.mlp.experts.*.up_proj",
              [W_MOE_DOWN] = MLP("experts.down_proj", "experts.w2_weight"),
              [W_SHARED_GATE] = "model.layers.*.mlp.shared_experts.gate_proj",
              [W_SHARED_UP] = "model.layers.*.mlp.shared_experts.up_proj",
              [W_SHARED_TURNS] = "model.llm.layers.*.mlp.shared_experts.shared_w13_weight",
              [W_SHARED_DOWN] = MLP("shared_experts.down_proj", "shared_experts.shared_w2_weight"),
              [W_POST_MLP_CONV] = NAME("mlp_sconv.conv1d", "mlp_sconv")},
    .keys = keys,
    .configure = configure,
};
