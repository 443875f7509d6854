/* EXAONE 4 (arXiv 2507.11407): norms only after the sublayers, per-head QK norm; in models with
 * sliding windows, only the layers with a window have RoPE. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-5, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->norms = NORM_AFTER;
    s->qk_norm = QK_NORM_HEAD;
    config_windows(c, s, 4096, config_pattern_layer);
    if (!cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(c->root, "sliding_window")))
        config_rotate_windows(s);
}

const struct arch arch_exaone4 = {
    .types = (const char *const[]){"exaone4", "exaone4_5_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_NORMS_AFTER, NAMES_QK_NORM},
    .configure = configure,
};
