/* Phi-3, 3.5 mini and 4: Llama with fused q, k, v and fused gate, up. arXiv 2404.14219.
 * Phi-4-multimodal (2503.01743) with text only: its image and audio adapters are off. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 4096, .norm_eps = 1e-5, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->qkv = QKV_STACKED;
    s->mlp = MLP_GATED_PACKED;
    config_windows(c, s, 0, config_every_layer);
}

/* Matrices with adapters beside them have another name. */
#define BASE(name) name "|" name ".base_layer"
#define ATTN(name) BASE("model.layers.*.self_attn." name)
#define MLP(name)  BASE("model.layers.*.mlp." name)
const struct arch arch_phi3 = {
    .types = (const char *const[]){"phi3", "phi4_multimodal", "phi4mm", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, [W_QKV] = ATTN("qkv_proj"), [W_O] = ATTN("o_proj"),
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_GATE_UP] = MLP("gate_up_proj"), [W_DOWN] = MLP("down_proj")},
    .configure = configure,
};
