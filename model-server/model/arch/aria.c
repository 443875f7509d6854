/* Aria, the text decoder (Rhymes AI, arXiv 2410.05993): Llama with experts and a shared expert in
 * every layer. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_llama(c, s);
    config_only(c, "mlp_bias", false);
    config_only_word(c, "hidden_act", "silu"); /* experts have it whatever the file says */
    s->moe.n_experts = config_u32_or(c, "moe_num_experts", 8, 1, 4096);
    s->moe.top_k = config_u32_or(c, "moe_topk", 2, 1, 4096);
    s->moe.ffn = s->ffn;
    s->moe.shared_ffn = s->ffn * config_u32_or(c, "moe_num_shared_experts", 2, 0, 64);
    s->moe.renormalise = true;
    config_check_moe(c, s);
    config_moe_layers(s);
}

const struct arch arch_aria = {
    .types = (const char *const[]){"aria_text", NULL},
    .prefix = "model.",
    /* the hub's tensors of all experts, then those that transformers 5 writes */
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O,
              NAMES_SHARED_EXPERTS, [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_ROUTER] = "model.layers.*.mlp.router",
              [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.fc1.weight|"
                                "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_DOWN] = "model.layers.*.mlp.experts.fc2.weight|"
                             "model.layers.*.mlp.experts.down_proj"},
    .configure = configure,
};
