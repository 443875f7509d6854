/* ERNIE 4.5 with experts: softmax scores, a bias for choosing, shared experts. */
#include "model-server/model/arch.h"

/* Every moe_layer_interval-th layer from start to end has experts; end -1: the last one. */
static void sparse_layers(struct config *c, struct decoder_spec *s)
{
    const uint32_t step = config_u32_or(c, "moe_layer_interval", 1, 1, SPEC_MAX_LAYERS);
    const double start = config_num_or(c, "moe_layer_start_index", 1),
                 end = config_num_or(c, "moe_layer_end_index", -1);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = (i + 1) % step == 0 && i >= start && (end < 0 || i <= end);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 500000, .tied = true});
    s->act = config_act(c, "hidden_act", "silu");
    s->rope[0].interleaved = true;
    s->bias.qkv = s->bias.o = config_bool_or(c, "use_bias", false);
    config_only(c, "use_bias", false);
    s->moe.n_experts = config_u32_or(c, "moe_num_experts", 64, 1, 4096);
    s->moe.top_k = config_u32_or(c, "moe_k", 6, 1, 4096);
    s->moe.ffn = config_dim(c, "moe_intermediate_size");
    s->moe.shared_ffn = s->moe.ffn * config_u32_or(c, "moe_num_shared_experts", 2, 0, 64);
    s->moe.renormalise = s->moe.select_bias = true;
    config_check_moe(c, s);
    if (!(config_num_or(c, "moe_norm_min", 1e-12) <= 1e-6)) /* of the sum of weights */
        config_fail(c, "`moe_norm_min` must be at most 1e-6");
    sparse_layers(c, s);
}

const struct arch arch_ernie4_5_moe = {
    .types = (const char *const[]){"ernie4_5_moe", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS, NAMES_SHARED_EXPERTS,
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.moe_statics.e_score_correction_bias|"
                                "model.layers.*.mlp.moe_statics.e_score_correction_bias"},
    .configure = configure,
};
