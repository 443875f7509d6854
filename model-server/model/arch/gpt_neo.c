/* GPT-Neo (also TinyStories): GPT-2 with separate matrices stored [out, in], unscaled attention
 * scores, and a sliding window in every other layer. https://github.com/EleutherAI/gpt-neo */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* attention_types: [[words of a period, how often], ...]; attention_layers: a word each. */
static const char *kind_of(const cJSON *layers, const cJSON *types, uint32_t layer)
{
    const cJSON *pair;
    if (cJSON_IsArray(layers))
        return cJSON_GetStringValue(cJSON_GetArrayItem(layers, (int)layer));
    cJSON_ArrayForEach(pair, types)
    {
        const cJSON *words = cJSON_GetArrayItem(pair, 0), *times = cJSON_GetArrayItem(pair, 1);
        const uint32_t n = words ? (uint32_t)cJSON_GetArraySize(words) : 0;
        const double all = cJSON_IsNumber(times) ? n * times->valuedouble : 0;
        if (n && layer < all)
            return cJSON_GetStringValue(cJSON_GetArrayItem(words, (int)(layer % n)));
        layer -= all > 0 ? (uint32_t)all : 0;
    }
    return NULL;
}

static void windows(struct config *c, struct decoder_spec *s)
{
    const cJSON *layers = json_get(c->root, "attention_layers");
    const cJSON *types = json_get(c->root, "attention_types");
    const uint32_t window = config_u32_or(c, "window_size", 256, 1, 1u << 24);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const char *word = layers || types ? kind_of(layers, types, i) : i % 2 ? "local" : "global";
        s->layers[i] = (struct layer_spec){.attn_scale = 1};
        if (word && strcmp(word, "local") == 0)
            s->layers[i].window = window;
        else if (!word || strcmp(word, "global") != 0)
            config_fail(c, "`attention_types`: `%.40s` of layer %u is not supported",
                        word ? word : "", i);
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 2048, .ffn_times = 4, .tied = true});
    s->norm = (struct norm_spec){.kind = NORM_LAYER,
                                 .eps = (float)config_num_or(c, "layer_norm_epsilon", 1e-5)};
    s->mlp = MLP_PLAIN;
    s->act = config_act(c, "activation_function", "gelu_new");
    s->bias.norm = s->bias.o = s->bias.mlp = s->learned_positions = true;
    windows(c, s);
}

static const struct config_key keys[] = {{"num_hidden_layers", "num_layers"},
                                         {"num_attention_heads", "num_heads"},
                                         {"num_key_value_heads", NULL},
                                         {NULL, NULL}};

const struct arch arch_gpt_neo = {
    .types = (const char *const[]){"gpt_neo", NULL},
    .prefix = "transformer.",
    .keys = keys,
    .names = {[W_EMBED] = "transformer.wte",
              [W_POSITIONS] = "transformer.wpe",
              [W_FINAL_NORM] = "transformer.ln_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "transformer.h.*.ln_1",
              [W_Q] = "transformer.h.*.attn.attention.q_proj",
              [W_K] = "transformer.h.*.attn.attention.k_proj",
              [W_V] = "transformer.h.*.attn.attention.v_proj",
              [W_O] = "transformer.h.*.attn.attention.out_proj",
              [W_MLP_NORM] = "transformer.h.*.ln_2",
              [W_UP] = "transformer.h.*.mlp.c_fc",
              [W_DOWN] = "transformer.h.*.mlp.c_proj"},
    .configure = configure,
};
