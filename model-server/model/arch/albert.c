/* ALBERT (arXiv 1909.11942): BERT with one set of weights shared by all layers, and an embedding
 * narrower than the layers. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_encoder(c, s, 0);
    config_embed_dim(c, s);
    s->act = config_act(c, "hidden_act", "gelu_new");
    if (config_u32_or(c, "num_hidden_groups", 1, 1, SPEC_MAX_LAYERS) != 1)
        config_fail(c, "`num_hidden_groups`: only 1 is supported");
    if (config_u32_or(c, "inner_group_num", 1, 1, SPEC_MAX_LAYERS) != 1)
        config_fail(c, "`inner_group_num`: only 1 is supported");
    for (uint32_t i = 1; i < s->n_layers; i++)
        s->layers[i].same_as = 1;
}

#define LAYER "albert.encoder.albert_layer_groups.*.albert_layers.0."
const struct arch arch_albert = {
    .types = (const char *const[]){"albert", NULL},
    .prefix = "albert.",
    .names = {[W_EMBED] = "albert.embeddings.word_embeddings",
              [W_POSITIONS] = "albert.embeddings.position_embeddings",
              [W_TOKEN_TYPES] = "albert.embeddings.token_type_embeddings",
              [W_EMBED_NORM] = "albert.embeddings.LayerNorm",
              [W_EMBED_PROJECT] = "albert.encoder.embedding_hidden_mapping_in",
              [W_Q] = LAYER "attention.query",
              [W_K] = LAYER "attention.key",
              [W_V] = LAYER "attention.value",
              [W_O] = LAYER "attention.dense",
              [W_POST_ATTN_NORM] = LAYER "attention.LayerNorm",
              [W_UP] = LAYER "ffn",
              [W_DOWN] = LAYER "ffn_output",
              [W_POST_MLP_NORM] = LAYER "full_layer_layer_norm"},
    .configure = configure,
};
