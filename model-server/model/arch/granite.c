/* IBM Granite 3, the text models of Granite 4 Vision and Granite Docling: Llama with multipliers of
 * embeddings, scores, residuals and logits. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    config_llama(c, s);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    config_multipliers(c, s);
    if (strcmp(json_str(c->root, "model_type", ""), "granite_docling_text") == 0)
        config_added(c, s);
}

const struct arch arch_granite = {
    .types = (const char *const[]){"granite", "granite4_vision_text", "granite_docling_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
