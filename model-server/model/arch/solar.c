/* Solar Pro (Upstage): Llama with skip connections: some layers read a blend of the residual stream
 * and of its value several layers before. Its sliding windows are not used, as in vLLM.
 * https://huggingface.co/upstage/solar-pro-preview-instruct */
#include "common/json/json.h"
#include "model-server/model/arch.h"

/* Calls of each number in the list `key` that is a layer's: sets a bit. */
static void mark(struct config *c, struct decoder_spec *s, const char *key, uint8_t bit, bool joins)
{
    const cJSON *list = json_get(c->root, key), *j;
    cJSON_ArrayForEach(j, list)
    {
        const double at = cJSON_IsNumber(j) ? j->valuedouble : -1;
        if (at < 1 || at >= s->n_layers || at != (uint32_t)at) {
            config_fail(c, "`%s`: a layer from 1 on is expected", key);
            return;
        }
        uint8_t *of = joins ? &s->layers[(uint32_t)at].joins : &s->layers[(uint32_t)at].keeps;
        *of |= bit;
    }
}

/* Every blend needs something that was kept. */
static void check(struct config *c, const struct decoder_spec *s)
{
    uint8_t kept = 0;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        kept |= s->layers[i].keeps;
        if (s->layers[i].joins & ~kept)
            config_fail(c, "layer %u reads the stream of an earlier layer, which none kept", i);
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    enum { OF_INFERENCE = 1 }; /* the other share is that of training */
    config_llama(c, s);
    config_only(c, "mlp_bias", false);
    mark(c, s, "bskcn_1", 1, false);
    mark(c, s, "bskcn_2", 2, false);
    mark(c, s, "bskcn_3", 1, true);
    mark(c, s, "bskcn_4", 2, true);
    const cJSON *share = cJSON_GetArrayItem(json_get(c->root, "bskcn_tv"), OF_INFERENCE);
    if (!cJSON_IsNumber(share) || !(share->valuedouble > 0 && share->valuedouble < 1))
        config_fail(c, "`bskcn_tv` must be two shares between 0 and 1");
    else
        s->skip_share = (float)share->valuedouble;
    check(c, s);
    s->logit_scale = (float)config_num_or(c, "logit_scale", 1);
}

const struct arch arch_solar = {
    .types = (const char *const[]){"solar", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
