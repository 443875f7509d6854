/* Cohere Command R7B, Command A: Command R with sliding-window attention in most layers, which
 * alone have RoPE. The text model of North Vision: half-split RoPE, and config.json names the
 * layers without RoPE. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static bool all_but_every_nth(struct config *c, uint32_t layer)
{
    const bool old = !json_get(c->root, "sliding_window_pattern");
    return config_all_but_nth(c, old ? "_sliding_window_pattern" : "sliding_window_pattern", 4,
                              layer);
}

/* True if the file says null for the rotation of this kind of layer. */
static bool stands(struct config *c, const char *kind)
{
    const cJSON *p = config_object(c, c->root, "rope_parameters");
    return cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(p, kind));
}

/* Three coordinates always alternate; the files do not say so. */
static void turn(struct config *c, struct rope_spec *r, const char *kind)
{
    const cJSON *p = config_object(c, c->root, "rope_parameters");
    const cJSON *sections = json_get(json_get(p, kind), "mrope_section");
    if (sections)
        config_rope_axes(c, r, sections, true);
}

/* A kind of layer has its own rotation, or none. */
static void compass(struct config *c, struct decoder_spec *s)
{
    config_windows(c, s, 4096, config_no_layer);
    config_window_rope(c, s, s->rope[0].theta);
    turn(c, &s->rope[0], "full_attention");
    turn(c, &s->rope[1], "sliding_attention");
    config_added(c, s);
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (stands(c, s->layers[i].window ? "sliding_attention" : "full_attention"))
            s->layers[i].rope = SPEC_NO_ROPE;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool sees = strcmp(json_str(c->root, "model_type", ""), "cohere_compass_text") == 0;
    config_decoder(
        c, s, &(struct config_defaults){.max_positions = 8192, .rope_theta = 10000, .tied = true});
    config_layer_norm(c, s, "layer_norm_eps", false);
    s->act = config_act(c, "hidden_act", "silu");
    config_only(c, "use_parallel_block", true);
    config_only(c, "use_gated_activation", true);
    config_only(c, "use_qk_norm", false);
    s->rope[0].interleaved = !sees;
    s->parallel = s->shared_norm = true;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->logit_scale = (float)config_num_or(c, "logit_scale", sees ? 1 : 0.0625);
    if (sees) {
        compass(c, s);
        return;
    }
    config_windows(c, s, 4096, all_but_every_nth);
    config_rotate_windows(s);
}

const struct arch arch_cohere2 = {
    .types = (const char *const[]){"cohere2", "cohere_compass_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_GATED_MLP},
    .configure = configure,
};
