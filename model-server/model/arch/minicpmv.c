/* The text models of MiniCPM-V 2.5 to 4.5 and MiniCPM-o 2.6 (OpenBMB, arXiv 2408.01800): Llama,
 * Qwen 2 or Qwen 3, as the version number in config.json says. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <stdlib.h>
#include <string.h>

/* A number, or text. Files of 2.5 have none. */
static double version(const struct config *c)
{
    const cJSON *v = json_get(c->file, "version");
    return cJSON_IsString(v) ? strtod(v->valuestring, NULL) : json_num(c->file, "version", 2.5);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const double v = version(c);
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 32768, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    if (v != 2.5 && v != 2.6 && v != 4 && v != 4.5)
        config_fail(c, "`version` must be 2.5, 2.6, 4.0 or 4.5");
    s->bias.qkv = v == 2.6;
    s->qk_norm = v == 4.5 ? QK_NORM_HEAD : QK_NORM_NONE;
    config_windows(c, s, 4096, config_upper_layers);
}

#define ATTENTION "model.layers.*.self_attn."
const struct arch arch_minicpmv = {
    .types = (const char *const[]){"minicpmv", "minicpmo", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, [W_Q_NORM] = ATTENTION "q_norm", [W_K_NORM] = ATTENTION "k_norm"},
    .configure = configure,
};
