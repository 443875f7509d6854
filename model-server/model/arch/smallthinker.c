/* SmallThinker (SJTU, arXiv 2507.20984): Llama with ReLU-gated experts and a router that reads the
 * residual stream before attention; some layers have sliding windows, some have no RoPE. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

/* True for layer `i` if the list under `key` has a number other than 0 for it; `def` if the file
 * has no list. */
static bool listed(const cJSON *first, uint32_t i, bool def)
{
    const cJSON *j = first;
    for (; j && i; i--)
        j = j->next;
    return j ? cJSON_IsTrue(j) || (cJSON_IsNumber(j) && j->valuedouble != 0) : def;
}

static void layers(struct config *c, struct decoder_spec *s)
{
    const cJSON *windows = config_layer_list(c, s, "sliding_window_layout");
    const cJSON *rotations = config_layer_list(c, s, "rope_layout");
    const char *key = config_either(c, "sliding_window_size", "sliding_window");
    const uint32_t window = config_u32_or(c, key, 4096, 1, 1u << 30);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].window = listed(windows, i, false) ? window : 0;
        if (!listed(rotations, i, true))
            s->layers[i].rope = SPEC_NO_ROPE;
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 131072,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 1000000,
                                             .head_dim = 128,
                                             .tied = true});
    s->act = ACT_RELU;
    s->moe.n_experts = config_u32_or(c, "moe_num_primary_experts", 32, 1, 1u << 16);
    s->moe.top_k = config_u32_or(c, "moe_num_active_primary_experts", 4, 1, 1u << 16);
    s->moe.ffn = s->ffn;
    s->moe.renormalise = s->moe.select_logits = s->moe.early_router = true;
    if (!config_bool_or(c, "moe_primary_router_apply_softmax", false))
        s->moe.score = MOE_SIGMOID;
    config_only(c, "moe_enable_secondary_experts", false);
    config_only(c, "moe_enable_early_router", true);
    config_only(c, "use_qk_norm", false);
    config_check_moe(c, s);
    config_moe_layers(s);
    layers(c, s);
}

static const struct config_key keys[] = {{"intermediate_size", "moe_ffn_hidden_size"},
                                         {NULL, NULL}};

#define MOE "model.layers.*.block_sparse_moe."
const struct arch arch_smallthinker = {
    .types = (const char *const[]){"smallthinker", NULL},
    .prefix = "model.",
    .keys = keys,
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV,
              NAMES_LLAMA_O, [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_ROUTER] = MOE "primary_router", [W_MOE_GATE] = MOE "experts.*.gate",
              [W_MOE_UP] = MOE "experts.*.up", [W_MOE_DOWN] = MOE "experts.*.down"},
    .configure = configure,
};
