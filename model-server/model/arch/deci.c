/* DeciLM 7B (Deci): Llama with a number of key-value heads that differs between layers. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_llama(c, s);
    const cJSON *j = config_layer_list(c, s, "num_key_value_heads_per_layer");
    if (!j)
        config_fail(c, "`num_key_value_heads_per_layer` is missing");
    for (uint32_t i = 0; j && i < s->n_layers; i++, j = j->next) {
        const double n = cJSON_IsNumber(j) ? j->valuedouble : 0;
        if (!(n >= 1 && n <= s->n_heads) || n != (uint32_t)n || s->n_heads % (uint32_t)n) {
            config_fail(c, "`num_key_value_heads_per_layer`: %g of layer %u do not divide %u heads",
                        n, i, s->n_heads);
            return;
        }
        s->layers[i].n_kv_heads = (uint32_t)n;
    }
}

/* That of all layers is null, or the largest. */
static const struct config_key keys[] = {{"num_key_value_heads", NULL}, {NULL, NULL}};

const struct arch arch_deci = {
    .types = (const char *const[]){"deci", NULL},
    .prefix = "model.",
    .keys = keys,
    .names = {NAMES_LLAMA},
    .configure = configure,
};
