/* Jamba (arXiv 2403.19887): Mamba layers, attention without positions in every eighth layer,
 * experts in every other layer. */
#include "model-server/model/arch.h"

static bool is_nth(struct config *c, uint32_t layer, const char *period, uint32_t def_period,
                   const char *offset, uint32_t def_offset)
{
    const uint32_t n = config_u32_or(c, period, def_period, 1, SPEC_MAX_LAYERS);
    return layer % n == config_u32_or(c, offset, def_offset, 0, SPEC_MAX_LAYERS);
}

static void experts(struct config *c, struct decoder_spec *s)
{
    if (config_u32_or(c, "num_experts", 16, 1, 4096) == 1) /* Jamba Reasoning 3B */
        return;
    config_moe(c, s, 16, 2);
    s->moe.ffn = s->ffn;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = is_nth(c, i, "expert_layer_period", 2, "expert_layer_offset", 1);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 262144, .norm_eps = 1e-6});
    s->act = config_act(c, "hidden_act", "silu");
    config_mamba(c, s, &config_mamba_keys, "mamba_dt_rank",
                 config_num_or(c, "mamba_expand", 2) * s->hidden);
    s->recur.scan_norm = SCAN_NORM_WEIGHTS;
    s->recur.scan_eps = s->norm.eps;
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (!is_nth(c, i, "attn_layer_period", 8, "attn_layer_offset", 4))
            s->layers[i].mixer = MIXER_MAMBA;
    experts(c, s);
}

const struct arch arch_jamba = {
    .types = (const char *const[]){"jamba", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_MAMBA("model.layers.*.mamba."),
              [W_MIX_STEP_NORM] = "model.layers.*.mamba.dt_layernorm.weight",
              [W_MIX_K_NORM] = "model.layers.*.mamba.b_layernorm.weight",
              [W_MIX_Q_NORM] = "model.layers.*.mamba.c_layernorm.weight",
              [W_EMBED] = "model.embed_tokens", [W_FINAL_NORM] = "model.final_layernorm",
              [W_HEAD] = "lm_head", [W_ATTN_NORM] = "model.layers.*.input_layernorm",
              [W_MLP_NORM] = "model.layers.*.pre_ff_layernorm",
              [W_GATE] = "model.layers.*.feed_forward.gate_proj",
              [W_UP] = "model.layers.*.feed_forward.up_proj",
              [W_DOWN] = "model.layers.*.feed_forward.down_proj",
              [W_ROUTER] = "model.layers.*.feed_forward.router",
              [W_MOE_GATE] = "model.layers.*.feed_forward.experts.*.gate_proj",
              [W_MOE_UP] = "model.layers.*.feed_forward.experts.*.up_proj",
              [W_MOE_GATE_UP] = "model.layers.*.feed_forward.experts.gate_up_proj",
              [W_MOE_DOWN] = "model.layers.*.feed_forward.experts.down_proj|model.layers.*.feed_"
                             "forward.experts.*.down_proj"},
    .configure = configure,
};
