/* Persimmon (Adept): per-head QK layer norms with biases, RoPE on half of each head, squared ReLU.
 * */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 16384, .rope_theta = 10000, .rotary = 0.5});
    config_layer_norm(c, s, "layer_norm_eps", true);
    if (config_bool_or(c, "qk_layernorm", true))
        s->qk_norm = QK_NORM_LAYER;
    s->act = config_act(c, "hidden_act", "relu2");
    s->qkv = QKV_GROUPED;
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
}

static const struct config_key keys[] = {
    {"num_key_value_heads", NULL}, {"head_dim", NULL}, {NULL, NULL}};

const struct arch arch_persimmon = {
    .types = (const char *const[]){"persimmon", NULL},
    .prefix = "model.",
    .keys = keys,
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.final_layernorm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "model.layers.*.input_layernorm",
              [W_QKV] = "model.layers.*.self_attn.query_key_value",
              [W_Q_NORM] = "model.layers.*.self_attn.q_layernorm",
              [W_K_NORM] = "model.layers.*.self_attn.k_layernorm",
              [W_O] = "model.layers.*.self_attn.dense",
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_UP] = "model.layers.*.mlp.dense_h_to_4h",
              [W_DOWN] = "model.layers.*.mlp.dense_4h_to_h"},
    .configure = configure,
};
