/* Cohere's Command with experts: cohere2.c with experts and a shared expert in place of the MLP. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The first dense layers have a period of their own. */
static bool all_but_every_nth(struct config *c, uint32_t layer)
{
    const uint32_t dense = config_u32_or(c, "first_k_dense_replace", 0, 0, SPEC_MAX_LAYERS);
    return layer < dense ? config_all_but_nth(c, "prefix_dense_sliding_window_pattern", 1, layer)
                         : config_all_but_nth(c, "sliding_window_pattern", 4, layer - dense);
}

static void experts(struct config *c, struct decoder_spec *s)
{
    const char *how = config_str_or(c, "shared_expert_combination_strategy", "average");
    const char *select = config_str_or(c, "expert_selection_fn", "softmax");
    const bool average = strcmp(how, "average") == 0;
    if (!average && strcmp(how, "sum") != 0)
        config_fail(c, "`shared_expert_combination_strategy`: %.40s is not supported", how);
    if (strcmp(select, "softmax") != 0 && strcmp(select, "sigmoid") != 0)
        config_fail(c, "`expert_selection_fn`: %.40s is not supported", select);
    config_moe(c, s, 8, 2);
    s->moe.ffn = s->ffn;
    s->moe.score = strcmp(select, "softmax") == 0 ? MOE_SOFTMAX : MOE_SIGMOID;
    /* softmax over the chosen is that of all, scaled to sum to 1 */
    s->moe.renormalise = s->moe.score == MOE_SOFTMAX || config_bool_or(c, "norm_topk_prob", true);
    s->moe.shared_ffn = s->ffn * config_u32_or(c, "num_shared_experts", 0, 0, 64);
    config_mlp_layer_types(c, s, config_u32_or(c, "first_k_dense_replace", 0, 0, SPEC_MAX_LAYERS));
    const uint32_t dense = config_u32_or(c, "prefix_dense_intermediate_size", s->ffn, 1, 1u << 22);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        struct layer_spec *l = &s->layers[i];
        l->ffn = l->moe ? 0 : dense;
        l->ffn_by = l->moe && s->moe.shared_ffn && average ? 0.5f : 0;
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 128,
                                             .max_positions = 8192,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .tied = true});
    if (!json_get(c->root, "rms_norm_eps"))
        config_layer_norm(c, s, "layer_norm_eps", false);
    s->act = config_act(c, "hidden_act", "silu");
    s->rope[0].interleaved = true;
    s->parallel = s->shared_norm = true;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->logit_scale = (float)config_num_or(c, "logit_scale", 0.0625);
    config_windows(c, s, 4096, all_but_every_nth);
    config_rotate_windows(s);
    experts(c, s);
    if (config_num_or(c, "prefix_dense_sliding_window_pattern", 1) != 1)
        return;
    for (uint32_t i = 0; i < s->n_layers; i++) /* dense layers rotate, with a window or without */
        if (!s->layers[i].moe)
            s->layers[i].rope = 0;
}

const struct arch arch_cohere2_moe = {
    .types = (const char *const[]){"cohere2_moe", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_EXPERTS,
              NAMES_SHARED_EXPERTS, NAMES_GATED_MLP},
    .configure = configure,
};
