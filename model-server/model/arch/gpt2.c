/* GPT-2: learned positions, layer norms, biases everywhere, matrices stored [in, out]. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    bool scaled = config_bool_or(c, "scale_attn_weights", true);
    bool by_layer = config_bool_or(c, "scale_attn_by_inverse_layer_idx", false);
    config_only(c, "add_cross_attention", false);
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 1024, .ffn_times = 4, .tied = true});
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    s->qkv = QKV_STACKED;
    s->mlp = MLP_PLAIN;
    s->act = config_act(c, "activation_function", "gelu_new");
    s->transposed = true;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->learned_positions = true;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = (scaled ? spec_head_scale(s) : 1) / (by_layer ? (float)i + 1 : 1);
}

const struct arch arch_gpt2 = {
    .types = (const char *const[]){"gpt2", "gpt-sw3", NULL},
    .prefix = "transformer.",
    .keys = config_keys_gpt2,
    .names = {NAMES_GPT2},
    .configure = configure,
};
