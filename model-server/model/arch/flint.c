/* Flint: Qwen 3 with a sigmoid router and a shared expert; sliding windows and RoPE in most layers,
 * none in the others; a learned attention sink per head. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static bool all_but_fourth_and_ends(struct config *c, uint32_t layer)
{
    const uint32_t n = config_layers(c, "num_hidden_layers");
    return layer >= 2 && layer % 4 != 1 && layer + 1 != n;
}

static void experts(struct config *c, struct decoder_spec *s)
{
    config_moe(c, s, 256, 6);
    s->moe.ffn = config_u32_or(c, "moe_intermediate_size", 512, 1, 1u << 22);
    s->moe.shared_ffn = config_u32_or(c, "shared_expert_intermediate_size", 1024, 1, 1u << 22);
    s->moe.score = MOE_SIGMOID;
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", true);
    config_sparse_layers(c, s);
    if (json_get(c->root, "mlp_only_layers"))
        return;
    for (uint32_t i = 0; i < 2 && i < s->n_layers; i++)
        s->layers[i].moe = false;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 128,
                                             .max_positions = 262144,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .ffn = 6144});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = QK_NORM_HEAD;
    s->sinks = SINKS_ALL;
    config_windows(c, s, 513, all_but_fourth_and_ends);
    config_rotate_windows(s);
    experts(c, s);
}

const struct arch arch_flint = {
    .types = (const char *const[]){"flint", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS, NAMES_QK_NORM, NAMES_QWEN_SHARED_EXPERT,
              [W_SINKS] = "model.layers.*.self_attn.sinks|"
                          "model.layers.*.self_attn.softmax_offset"},
    .configure = configure,
};
