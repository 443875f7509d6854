/* Qwen 3 with experts; dense layers where config.json says so. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Of all layers: max_window_layers is not read, as transformers does not. */
static bool if_used(struct config *c, uint32_t layer)
{
    return (void)layer, config_bool_or(c, "use_sliding_window", false);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 32768, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = QK_NORM_HEAD;
    config_added(c, s);
    config_moe(c, s, 128, 8);
    s->moe.ffn = config_dim(c, "moe_intermediate_size");
    /* vision models always do, and their files need not say so */
    const char *type = json_str(c->root, "model_type", "");
    const bool sees = strcmp(type, "qwen3_vl_moe_text") == 0;
    const bool omni = strcmp(type, "qwen3_omni_moe_text") == 0;
    s->moe.renormalise = sees || config_bool_or(c, "norm_topk_prob", omni);
    config_windows(c, s, 4096, if_used);
    config_sparse_layers(c, s);
}

const struct arch arch_qwen3_moe = {
    .types = (const char *const[]){"qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS, NAMES_QK_NORM},
    .configure = configure,
};
