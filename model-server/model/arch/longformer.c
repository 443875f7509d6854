/* Longformer (arXiv 2004.05150): RoBERTa whose tokens see a window to both sides. No token sees all
 * others, which a caller of the model may ask for and its classifiers do. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

enum { DEFAULT_WINDOW = 512 };

/* attention_window: one number for all layers, or one for each; half of it to each side. */
static void windows(struct config *c, struct decoder_spec *s)
{
    const cJSON *list = json_get(c->root, "attention_window"), *j = NULL;
    const bool each = cJSON_IsArray(list);
    if (each)
        j = config_layer_list(c, s, "attention_window");
    for (uint32_t i = 0; i < s->n_layers; i++, j = j ? j->next : NULL) {
        const cJSON *one = each ? j : list;
        const double n = one ? cJSON_IsNumber(one) ? one->valuedouble : -1 : DEFAULT_WINDOW;
        if (!(n >= 2 && n <= 1u << 24) || n != 2 * (uint32_t)(n / 2)) {
            config_fail(c, "`attention_window` of layer %u must be an even number above 0", i);
            return;
        }
        s->layers[i].window = (uint32_t)n / 2 + 1;
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const cJSON *word = cJSON_GetArrayItem(json_get(c->root, "architectures"), 0);
    const char *name = cJSON_IsString(word) ? word->valuestring : "LongformerModel";
    config_encoder(c, s, 1 + config_u32_or(c, "pad_token_id", 1, 0, 1u << 24));
    if (strcmp(name, "LongformerModel") != 0 && strcmp(name, "LongformerForMaskedLM") != 0)
        config_fail(c, "`architectures`: `%.60s`: tokens that see all others are not supported",
                    name);
    windows(c, s);
}

const struct arch arch_longformer = {
    .types = (const char *const[]){"longformer", NULL},
    .prefix = "longformer.",
    .names = {NAMES_BERT("longformer.")},
    .configure = configure,
};
