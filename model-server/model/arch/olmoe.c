/* OLMoE (arXiv 2409.02060): experts in every layer, QK norm over all heads together. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 4096, .norm_eps = 1e-5, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = QK_NORM_ALL;
    if (json_get(c->root, "clip_qkv")) /* behind the norms */
        config_fail(c, "`clip_qkv` is not supported");
    config_moe(c, s, 64, 8);
    s->moe.ffn = s->ffn;
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", false);
    config_moe_layers(s);
}

const struct arch arch_olmoe = {
    .types = (const char *const[]){"olmoe", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS, NAMES_QK_NORM},
    .configure = configure,
};
