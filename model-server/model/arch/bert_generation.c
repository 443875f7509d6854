/* The encoder of BertGeneration (arXiv 1907.12461): BERT without token type embeddings. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_encoder(c, s, 0);
    s->token_types = 0;
}

const struct arch arch_bert_generation = {
    .types = (const char *const[]){"bert-generation", NULL},
    .prefix = "bert.|encoder.", /* the second in models of an encoder and a decoder */
    .names = {[W_EMBED] = "bert.embeddings.word_embeddings",
              [W_POSITIONS] = "bert.embeddings.position_embeddings",
              [W_EMBED_NORM] = "bert.embeddings.LayerNorm",
              NAMES_BERT_LAYER("bert.")},
    .configure = configure,
};
