/* EXAONE 4 (arXiv 2507.11407): norms after the branches only, q and k normalised per head; where
 * there are windows, only layers that have one rotate. */
#include "common/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* "LLLG": which layers of a period have a window, or every nth has none. */
static bool local_layer(struct config *c, uint32_t layer)
{
    const char *word = json_str(c->root, "sliding_window_pattern", NULL);
    if (word && *word)
        return word[layer % strlen(word)] == 'L';
    double n = json_num(c->root, "sliding_window_pattern", 4);
    return n >= 1 && (layer + 1) % (uint32_t)n != 0;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-5, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->norms = NORM_AFTER;
    s->qk_norm = QK_NORM_HEAD;
    config_windows(c, s, 0, local_layer);
    const bool windows = json_get(c->root, "sliding_window") != NULL;
    for (uint32_t i = 0; windows && i < s->n_layers; i++)
        s->layers[i].rope = s->layers[i].window ? 0 : SPEC_NO_ROPE;
}

const struct arch arch_exaone4 = {
    .types = (const char *const[]){"exaone4", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, NAMES_NORMS_AFTER, NAMES_QK_NORM},
    .configure = configure,
};
