/* Phi-1, 1.5 and 2: parallel attention and ungated MLP after one norm. arXiv 2309.05463 */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s, &(struct config_defaults){.max_positions = 2048, .rope_theta = 10000, .rotary = 0.5});
    config_layer_norm(c, s, "layer_norm_eps", true);
    if (config_bool_or(c, "qk_layernorm", false))
        s->qk_norm = QK_NORM_LAYER;
    s->act = config_act(c, "hidden_act", "gelu_new");
    s->mlp = MLP_PLAIN;
    s->parallel = s->shared_norm = true;
    s->bias.qkv = s->bias.o = s->bias.mlp = s->bias.head = true;
}

const struct arch arch_phi = {
    .types = (const char *const[]){"phi", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.final_layernorm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "model.layers.*.input_layernorm",
              NAMES_LLAMA_QKV,
              [W_Q_NORM] = "model.layers.*.self_attn.q_layernorm",
              [W_K_NORM] = "model.layers.*.self_attn.k_layernorm",
              [W_O] = "model.layers.*.self_attn.dense",
              [W_UP] = "model.layers.*.mlp.fc1",
              [W_DOWN] = "model.layers.*.mlp.fc2"},
    .configure = configure,
};
