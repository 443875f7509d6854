/* OLMo 2 and 3 (arXiv 2501.00656): norms only after the sublayers, QK norm over all heads together;
 * OLMo 3 has sliding windows, and RoPE scaling only in the layers with full attention. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static bool all_but_fourth(struct config *c, uint32_t layer)
{
    return json_get(c->root, "sliding_window") && (layer + 1) % 4 != 0;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-5, .rope_theta = 500000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->norms = NORM_AFTER;
    s->qk_norm = QK_NORM_ALL;
    config_windows(c, s, 0, all_but_fourth);
    config_window_rope(c, s, s->rope[0].theta);
}

const struct arch arch_olmo2 = {
    .types = (const char *const[]){"olmo2", "olmo3", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_NORMS_AFTER, NAMES_QK_NORM},
    .configure = configure,
};
