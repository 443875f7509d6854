/* X-MOD (arXiv 2205.06266): RoBERTa with a language adapter after each layer, followed by that
 * layer's last norm again. The language is `default_language` of config.json. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <stdio.h>
#include <string.h>

/* The MLPs are layers of their own. */
static void pair_layers(struct config *c, struct decoder_spec *s)
{
    const uint32_t by = config_u32_or(c, "adapter_reduction_factor", 2, 1, 1u << 16);
    if (s->n_layers > SPEC_MAX_LAYERS / 2)
        config_fail(c, "`num_hidden_layers` must be at most %d", SPEC_MAX_LAYERS / 2);
    if (s->hidden < by)
        config_fail(c, "`adapter_reduction_factor`: %u of %u numbers", by, s->hidden);
    if (c->failed)
        return;
    for (size_t i = s->n_layers; i-- > 0;) {
        s->layers[2 * i + 1] = (struct layer_spec){
            .mixer = MIXER_NONE, .ffn = s->hidden / by, .attn_scale = s->layers[i].attn_scale};
        s->layers[2 * i] = s->layers[i];
    }
    s->n_layers *= 2;
    s->paired = true;
}

static void read_language(struct config *c, struct decoder_spec *s)
{
    static const char only_en[] = "en_XX";
    const cJSON *all = json_get(c->root, "languages"), *j;
    const char *language = config_str_or(c, "default_language", "");
    bool known = !all && strcmp(language, only_en) == 0;
    cJSON_ArrayForEach(j, all) known |= cJSON_IsString(j) && strcmp(j->valuestring, language) == 0;
    if (!known || strlen(language) >= sizeof(s->word))
        config_fail(c, "`default_language`: `%.40s` is none of `languages`", language);
    else
        snprintf(s->word, sizeof(s->word), "%s", language);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_encoder(c, s, 1 + config_u32_or(c, "pad_token_id", 1, 0, 1u << 24));
    config_masked_head(c, s, ACT_GELU);
    config_only(c, "pre_norm", false);
    config_only(c, "adapter_layer_norm", false);
    config_only(c, "adapter_reuse_layer_norm", true);
    config_only(c, "ln_before_adapter", true);
    read_language(c, s);
    pair_layers(c, s);
}

#define ADAPTER "roberta.encoder.layer.*.output.adapter_modules.@."
static const struct arch second = {
    .prefix = "roberta.",
    .names = {[W_UP] = ADAPTER "dense1",
              [W_DOWN] = ADAPTER "dense2",
              [W_POST_MLP_NORM] = "roberta.encoder.layer.*.output.LayerNorm"}};

const struct arch arch_xmod = {
    .types = (const char *const[]){"xmod", NULL},
    .prefix = "roberta.",
    .names = {NAMES_BERT("roberta."), NAMES_ROBERTA_HEAD},
    .second = &second,
    .configure = configure,
};
