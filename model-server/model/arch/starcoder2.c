/* StarCoder 2: layer norms, biases, an ungated MLP, sliding-window attention. arXiv 2402.19173 */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s, &(struct config_defaults){.max_positions = 4096, .rope_theta = 10000, .tied = true});
    config_layer_norm(c, s, "norm_epsilon", true);
    s->act = config_act(c, "hidden_act", "gelu_pytorch_tanh");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = config_bool_or(c, "use_bias", true);
    config_windows(c, s, 0, config_every_layer);
}

const struct arch arch_starcoder2 = {
    .types = (const char *const[]){"starcoder2", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV,
              NAMES_LLAMA_O, [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_UP] = "model.layers.*.mlp.c_fc", [W_DOWN] = "model.layers.*.mlp.c_proj"},
    .configure = configure,
};
