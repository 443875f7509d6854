/* ELECTRA's discriminator (arXiv 2003.10555): BERT with an embedding that may be narrower than the
 * layers. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_encoder(c, s, 0);
    config_narrow_embed(c, s);
}

const struct arch arch_electra = {
    .types = (const char *const[]){"electra", NULL},
    .prefix = "electra.",
    .names = {NAMES_BERT("electra."), [W_EMBED_PROJECT] = "electra.embeddings_project"},
    .configure = configure,
};
