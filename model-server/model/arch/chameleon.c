/* Chameleon (Meta, arXiv 2405.09818), text only: Llama with per-head QK layer norms that have their
 * own weights and biases; the 34B model applies the other norms after the sublayers. Image tokens
 * are never generated. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Ids of names that begin with IMGIMG: vocabulary_map. */
static void mute_images(struct config *c, struct decoder_spec *s)
{
    static const char begin[] = "IMGIMG";
    const cJSON *map = config_object(c, c->root, "vocabulary_map"), *j;
    uint32_t least = UINT32_MAX, most = 0, n = 0;
    cJSON_ArrayForEach(j, map)
    {
        if (strncmp(j->string, begin, sizeof(begin) - 1) != 0)
            continue;
        if (!cJSON_IsNumber(j) || !(j->valuedouble >= 0 && j->valuedouble < s->vocab)) {
            config_fail(c, "`vocabulary_map`: `%s` is no id", j->string);
            return;
        }
        const uint32_t id = (uint32_t)j->valuedouble;
        least = id < least ? id : least;
        most = id > most ? id : most;
        n++;
    }
    if (n && most - least + 1 != n)
        config_fail(c, "`vocabulary_map`: the ids of images are not consecutive");
    s->first_mute = n ? least : 0;
    s->n_mute = n;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 4096, .norm_eps = 1e-5, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    s->qk_norm = QK_NORM_LAYER_BY_HEAD;
    s->qk_norm_eps = 1e-5F; /* whatever rms_norm_eps is */
    if (config_bool_or(c, "swin_norm", false))
        s->norms = NORM_AFTER;
    mute_images(c, s);
}

/* With swin_norm the same two follow the branches. */
const struct arch arch_chameleon = {
    .types = (const char *const[]){"chameleon", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, [W_Q_NORM] = "model.layers.*.self_attn.q_norm",
              [W_K_NORM] = "model.layers.*.self_attn.k_norm",
              [W_POST_ATTN_NORM] = "model.layers.*.input_layernorm",
              [W_POST_MLP_NORM] = "model.layers.*.post_attention_layernorm"},
    .configure = configure,
};
