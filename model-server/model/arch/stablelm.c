/* StableLM 2 and 3B: layer norms, RoPE on a quarter of each head. stablelm_epoch is the model_type
 * of the first checkpoints. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 4096, .rope_theta = 10000, .rotary = 0.25});
    config_layer_norm(c, s, "layer_norm_eps", true);
    if (config_bool_or(c, "qk_layernorm", false)) /* StableLM 2 12B */
        s->qk_norm = QK_NORM_BY_HEAD;
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = config_bool_or(c, "use_qkv_bias", false);
    s->parallel = s->shared_norm = config_bool_or(c, "use_parallel_residual", false);
}

static const struct config_key keys[] = {{"layer_norm_eps", "norm_eps", false},
                                         {"partial_rotary_factor", "rope_pct", false},
                                         {NULL, NULL, false}};

const struct arch arch_stablelm = {
    .types = (const char *const[]){"stablelm", "stablelm_epoch", NULL},
    .prefix = "model.",
    .keys = keys,
    .names = {NAMES_LLAMA, [W_Q_NORM] = "model.layers.*.self_attn.q_layernorm.norms.*",
              [W_K_NORM] = "model.layers.*.self_attn.k_layernorm.norms.*"},
    .configure = configure,
};
