/* Qwen 3.5 and 3.6, dense: layers of the gated delta rule (arXiv 2412.06464); every fourth layer is
 * attention with an output gate. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_absent(c, "{\"num_key_value_heads\":4}");
    config_qwen_delta(c, s, 0);
}

const struct arch arch_qwen3_5_text = {
    .types = (const char *const[]){"qwen3_5_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_QK_NORM, NAMES_DELTA},
    .configure = configure,
};
