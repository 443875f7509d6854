/* Llama 3.2 Vision, the text decoder: Llama 3.1 with additional layers of cross-attention to
 * images. https://huggingface.co/meta-llama/Llama-3.2-11B-Vision */
#include "common/json/json.h"
#include "model-server/model/arch.h"

/* Numbers of the layers that attend to pictures. */
static void cross_layers(struct config *c, struct decoder_spec *s)
{
    static const uint32_t usual[] = {3, 8, 13, 18, 23, 28, 33, 38};
    const cJSON *list = json_get(c->root, "cross_attention_layers"), *j;
    for (size_t i = 0; !list && i < sizeof(usual) / sizeof(usual[0]); i++)
        if (usual[i] < s->n_layers)
            s->layers[usual[i]].mixer = MIXER_CROSS;
    if (list && !cJSON_IsArray(list))
        config_fail(c, "`cross_attention_layers` must be a list");
    cJSON_ArrayForEach(j, list)
    {
        if (!cJSON_IsNumber(j) || j->valuedouble < 0 || j->valuedouble >= s->n_layers ||
            j->valuedouble != (uint32_t)j->valuedouble) {
            config_fail(c, "`cross_attention_layers` must be numbers below %u", s->n_layers);
            return;
        }
        s->layers[(uint32_t)j->valuedouble].mixer = MIXER_CROSS;
    }
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].gated = s->layers[i].mixer == MIXER_CROSS;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 500000});
    s->act = config_act(c, "hidden_act", "silu");
    s->more_embeds = 8; /* that of <|image|>, and others that are never asked for */
    cross_layers(c, s);
    s->cross_norms = true;
}

#define EITHER(end)                                                                                \
    "model.layers.*.self_attn." end "|"                                                            \
    "model.layers.*.cross_attn." end
const struct arch arch_mllama = {
    .types = (const char *const[]){"mllama_text_model", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_MLP, [W_Q] = EITHER("q_proj"),
              [W_K] = EITHER("k_proj"), [W_V] = EITHER("v_proj"), [W_O] = EITHER("o_proj"),
              [W_Q_NORM] = "model.layers.*.cross_attn.q_norm",
              [W_K_NORM] = "model.layers.*.cross_attn.k_norm",
              [W_ATTN_TANH] = "model.layers.*.cross_attn_attn_gate",
              [W_MLP_TANH] = "model.layers.*.cross_attn_mlp_gate"},
    .configure = configure,
};
