/* Liquid AI's LFM2 (arXiv 2511.23404), dense and with experts: gated short convolutions, and a few
 * attention layers. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <math.h>
#include <string.h>

/* Layers that are not in full_attn_idxs. */
static bool is_conv(struct config *c, uint32_t layer)
{
    const cJSON *full = json_get(c->root, "full_attn_idxs"), *j;
    cJSON_ArrayForEach(j, full)
    {
        if (cJSON_IsNumber(j) && j->valuedouble == layer)
            return false;
    }
    return full != NULL;
}

/* The width that the files of the hub leave to arithmetic. */
static void width(struct config *c, struct decoder_spec *s)
{
    s->ffn = config_u32_or(c, "block_ff_dim", s->ffn, 1, 1u << 24);
    if (!config_bool_or(c, "block_auto_adjust_ff_dim", true))
        return;
    const uint32_t unit = config_u32_or(c, "block_multiple_of", 256, 1, 1u << 16);
    const double wide =
        floor(config_num_or(c, "block_ffn_dim_multiplier", 1) * floor(2.0 * s->ffn / 3));
    if (!(wide >= 1 && wide < 1u << 24))
        config_fail(c, "`block_ffn_dim_multiplier` is out of range");
    else
        s->ffn = ((uint32_t)wide + unit - 1) / unit * unit;
}

static void experts(struct config *c, struct decoder_spec *s)
{
    const uint32_t dense = config_u32_or(c, "num_dense_layers", 2, 0, SPEC_MAX_LAYERS);
    config_moe(c, s, 32, 4);
    s->moe.ffn = config_dim(c, "moe_intermediate_size");
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = config_bool_or(c, "use_expert_bias", true);
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", true);
    s->moe.scale = (float)config_num_or(c, "routed_scaling_factor", 1);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = i >= dense;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool moe = strcmp(json_str(c->root, "model_type", ""), "lfm2_moe") == 0;
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 128000,
                                             .norm_eps = 1e-5,
                                             .rope_theta = 1000000,
                                             .tied = config_bool_or(c, "tie_embedding", true),
                                             .ffn = 12288});
    if (moe)
        experts(c, s);
    else
        width(c, s);
    s->norm.eps = (float)config_num_or(c, "norm_eps", 1e-5);
    s->act = ACT_SILU;
    config_only(c, "block_use_swiglu", true);
    s->qk_norm = QK_NORM_HEAD;
    s->recur.conv = config_u32_or(c, "conv_L_cache", 3, 2, CONV_MOST);
    s->recur.conv_bias = s->recur.proj_bias = config_bool_or(c, "conv_bias", false);
    config_mixers(c, s, MIXER_CONV, is_conv);
}

const struct arch arch_lfm2 = {
    .types = (const char *const[]){"lfm2", "lfm2_moe", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_QKV,
              [W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.embedding_norm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "model.layers.*.operator_norm",
              [W_MLP_NORM] = "model.layers.*.ffn_norm",
              [W_Q_NORM] = "model.layers.*.self_attn.q_layernorm",
              [W_K_NORM] = "model.layers.*.self_attn.k_layernorm",
              [W_O] = "model.layers.*.self_attn.out_proj",
              [W_GATE] = "model.layers.*.feed_forward.w1",
              [W_UP] = "model.layers.*.feed_forward.w3",
              [W_DOWN] = "model.layers.*.feed_forward.w2",
              [W_ROUTER] = "model.layers.*.feed_forward.gate",
              [W_SELECT_BIAS] = "model.layers.*.feed_forward.expert_bias",
              [W_MOE_GATE] = "model.layers.*.feed_forward.experts.*.w1",
              [W_MOE_UP] = "model.layers.*.feed_forward.experts.*.w3",
              [W_MOE_GATE_UP] = "model.layers.*.feed_forward.experts.gate_up_proj",
              [W_MOE_DOWN] = "model.layers.*.feed_forward.experts.down_proj|model.layers.*.feed_"
                             "forward.experts.*.w2",
              [W_MIX_IN] = "model.layers.*.conv.in_proj",
              [W_MIX_CONV] = "model.layers.*.conv.conv",
              [W_MIX_OUT] = "model.layers.*.conv.out_proj"},
    .configure = configure,
};
