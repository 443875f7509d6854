/* Arcee's Trinity (AFMoE): sliding-window attention in three of four layers, RoPE in these layers
 * alone, an output gate on attention, norms before and after each sublayer. Router: sigmoid scores
 * and a selection bias. */
#include "model-server/model/arch.h"

static bool all_but_every_nth(struct config *c, uint32_t layer)
{
    return (layer + 1) % config_u32_or(c, "global_attn_every_n_layers", 4, 1, SPEC_MAX_LAYERS) != 0;
}

static void experts(struct config *c, struct decoder_spec *s)
{
    const uint32_t dense = config_u32_or(c, "num_dense_layers", 1, 0, SPEC_MAX_LAYERS);
    config_only_word(c, "score_func", "sigmoid");
    config_only(c, "route_norm", true);
    config_deepseek_moe(c, s);
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = s->moe.renormalise = true;
    s->moe.scale = (float)config_num_or(c, "route_scale", 1);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = i >= dense;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 16384, .norm_eps = 1e-5, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->norms = NORM_AROUND;
    s->qk_norm = QK_NORM_HEAD;
    s->attn_gate = ATTN_GATE_APART;
    if (config_bool_or(c, "mup_enabled", false))
        s->embed_scale = sqrtf((float)s->hidden);
    config_windows(c, s, 1024, all_but_every_nth);
    config_rotate_windows(s);
    experts(c, s);
}

const struct arch arch_afmoe = {
    .types = (const char *const[]){"afmoe", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_QK_NORM,
              NAMES_SHARED_EXPERTS, [W_ATTN_GATE] = "model.layers.*.self_attn.gate_proj",
              [W_POST_ATTN_NORM] = "model.layers.*.post_attention_layernorm",
              [W_MLP_NORM] = "model.layers.*.pre_mlp_layernorm",
              [W_POST_MLP_NORM] = "model.layers.*.post_mlp_layernorm",
              NAMES_GATED_MLP, [W_ROUTER] = "model.layers.*.mlp.router.gate",
              [W_SELECT_BIAS] = "model.layers.*.mlp.expert_bias",
              [W_MOE_GATE] = "model.layers.*.mlp.experts.*.gate_proj",
              [W_MOE_UP] = "model.layers.*.mlp.experts.*.up_proj",
              [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_DOWN] =
                  "model.layers.*.mlp.experts.down_proj|model.layers.*.mlp.experts.*.down_proj"},
    .configure = configure,
};
