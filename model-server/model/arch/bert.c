/* BERT (arXiv 1810.04805): an encoder with norms of sums, learned positions and types of tokens. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s) { config_encoder(c, s, 0); }

const struct arch arch_bert = {
    .types = (const char *const[]){"bert", NULL},
    .prefix = "bert.",
    .names = {NAMES_BERT("bert.")},
    .configure = configure,
};
