/* RemBERT (arXiv 2010.12821): BERT with an embedding width of its own, which is always projected.
 * */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_encoder(c, s, 0);
    config_embed_dim(c, s);
}

const struct arch arch_rembert = {
    .types = (const char *const[]){"rembert", NULL},
    .prefix = "rembert.",
    .names = {NAMES_BERT("rembert."), [W_EMBED_PROJECT] =
                                          "rembert.encoder.embedding_hidden_mapping_in"},
    .keys = (const struct config_key[]){{"embedding_size", "input_embedding_size", true}, {0}},
    .configure = configure,
};
