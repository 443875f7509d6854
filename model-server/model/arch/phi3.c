/* Phi-3, 3.5 mini and 4: Llama with q, k, v and gate, up stored as one matrix each. arXiv
 * 2404.14219 */
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

const struct arch arch_phi3 = {
    .types = (const char *const[]){"phi3", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_O, [W_QKV] = "model.layers.*.self_attn.qkv_proj",
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_GATE_UP] = "model.layers.*.mlp.gate_up_proj",
              [W_DOWN] = "model.layers.*.mlp.down_proj"},
    .configure = configure,
};
