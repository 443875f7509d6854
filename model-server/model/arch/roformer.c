/* RoFormer (arXiv 2104.09864): BERT with interleaved RoPE. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 1536, .rope_theta = 10000});
    config_sums(s, config_num_or(c, "layer_norm_eps", 1e-12));
    config_type_rows(c, s);
    config_narrow_embed(c, s);
    config_only(c, "is_decoder", false);
    config_only(c, "rotary_value", false);
    s->rope[0].interleaved = true;
    s->act = config_act(c, "hidden_act", "gelu");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
}

const struct arch arch_roformer = {
    .types = (const char *const[]){"roformer", NULL},
    .prefix = "roformer.",
    .names = {NAMES_BERT_LAYER("roformer."), [W_EMBED] = "roformer.embeddings.word_embeddings",
              [W_TOKEN_TYPES] = "roformer.embeddings.token_type_embeddings",
              [W_EMBED_NORM] = "roformer.embeddings.LayerNorm",
              [W_EMBED_PROJECT] = "roformer.embeddings_project"},
    .configure = configure,
};
