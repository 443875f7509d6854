/* RoBERTa, XLM-RoBERTa, CamemBERT (arXiv 1907.11692, 1911.02116) and data2vec's text model
 * (2202.03555): BERT whose positions begin behind the padding's. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_encoder(c, s, 1 + config_u32_or(c, "pad_token_id", 1, 0, 1u << 24));
}

const struct arch arch_roberta = {
    .types = (const char *const[]){"roberta", "xlm-roberta", "camembert", "data2vec-text", NULL},
    .prefix = "roberta.|data2vec_text.",
    .names = {NAMES_BERT("roberta.")},
    .configure = configure,
};
