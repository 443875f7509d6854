/* Longformer (arXiv 2004.05150): RoBERTa with bidirectional sliding-window attention. Global
 * attention, which callers of the model may request and its classifiers use, is not served. */
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *name = config_class(c, "LongformerModel");
    config_encoder(c, s, 1 + config_u32_or(c, "pad_token_id", 1, 0, 1u << 24));
    if (strcmp(name, "LongformerModel") != 0 && strcmp(name, "LongformerForMaskedLM") != 0)
        config_fail(c, "`architectures`: `%.60s`: tokens that see all others are not supported",
                    name);
    config_attention_window(c, s);
}

const struct arch arch_longformer = {
    .types = (const char *const[]){"longformer", NULL},
    .prefix = "longformer.",
    .names = {NAMES_BERT("longformer.")},
    .configure = configure,
};
