/* Qwen3-Next and Qwen 3.5 with experts: layers of the gated delta rule (arXiv 2412.06464), every
 * fourth layer attention with an output gate; one gated shared expert. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool next = strcmp(json_str(c->root, "model_type", ""), "qwen3_next") == 0;
    config_qwen_delta(c, s, 5632);
    s->recur.grouped = next;
    config_qwen_experts(c, s, next ? 512 : 256, next ? 10 : 8);
    s->moe.renormalise = !next || config_bool_or(c, "norm_topk_prob", true);
    config_sparse_layers(c, s);
}

const struct arch arch_qwen3_next = {
    .types = (const char *const[]){"qwen3_next", "qwen3_5_moe_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_EXPERTS, NAMES_QK_NORM, NAMES_DELTA, NAMES_QWEN_SHARED_EXPERT},
    .configure = configure,
};
