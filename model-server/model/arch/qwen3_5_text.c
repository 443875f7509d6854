/* Qwen 3.5 and 3.6, dense: layers of the gated delta rule (arXiv 2412.06464), every fourth one of
 * attention with a gate. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_absent(c, "{\"num_key_value_heads\":4}");
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 256,
                                             .max_positions = 32768,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000000,
                                             .rotary = 0.25});
    s->act = config_act(c, "hidden_act", "silu");
    s->norm.plus = 1;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->qk_norm = QK_NORM_HEAD;
    config_delta(c, s);
}

const struct arch arch_qwen3_5_text = {
    .types = (const char *const[]){"qwen3_5_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_QK_NORM, NAMES_DELTA},
    .configure = configure,
};
