/* FlexOlmo (arXiv 2507.07024): OLMo 2 with experts. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 4096, .norm_eps = 1e-6, .rope_theta = 500000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->norms = NORM_AFTER;
    s->qk_norm = QK_NORM_ALL;
    config_moe(c, s, 7, 5);
    s->moe.ffn = s->ffn;
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", false);
    config_moe_layers(s);
}

const struct arch arch_flex_olmo = {
    .types = (const char *const[]){"flex_olmo", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_EXPERTS, NAMES_NORMS_AFTER,
              NAMES_QK_NORM},
    .configure = configure,
};
