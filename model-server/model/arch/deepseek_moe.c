/* DeepSeekMoE 16B (arXiv 2401.06066), DeepSeek's first model with experts: Llama's attention,
 * softmax router, shared experts. Also the text models of DeepSeek-OCR and DeepSeek-OCR 2. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *type = json_str(c->root, "model_type", "");
    config_llama(c, s);
    config_only_word(c, "scoring_func", "softmax");
    if (config_u32_or(c, "moe_layer_freq", 1, 1, SPEC_MAX_LAYERS) != 1)
        config_fail(c, "`moe_layer_freq`: only 1 is supported");
    if (strcmp(type, "deepseek_vl_v2") == 0) {
        if (config_bool_or(c, "use_mla", true))
            config_fail(c, "`use_mla`: latent attention in this family is not supported");
        config_deepseek_v2_moe(c, s);
        return;
    }
    if (strcmp(type, "deepseek_ocr2_text") == 0) {
        config_deepseek_v2_moe(c, s);
        config_mlp_layer_types(c, s, 0);
        return;
    }
    s->moe.score = MOE_SOFTMAX;
    config_deepseek_moe(c, s);
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", false);
}

const struct arch arch_deepseek_moe = {
    .types = (const char *const[]){"deepseek", "deepseek_ocr2_text", "deepseek_vl_v2", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS, NAMES_SHARED_EXPERTS},
    .configure = configure,
};
