/* BioGPT (arXiv 2210.10341): learned positions with an offset of 2, scaled embeddings, layer norms.
 * */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 1024, .tied = true});
    s->n_kv_heads = s->n_heads;
    config_layer_norm(c, s, "layer_norm_eps", true);
    s->norm.eps = 1e-5f; /* the key is not used by the layers */
    s->act = config_act(c, "hidden_act", "gelu");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = s->learned_positions = true;
    s->position_offset = 2;
    if (config_bool_or(c, "scale_embedding", true))
        s->embed_scale = sqrtf((float)s->hidden);
}

const struct arch arch_biogpt = {
    .types = (const char *const[]){"biogpt", NULL},
    .prefix = "biogpt.",
    .names = {[W_EMBED] = "biogpt.embed_tokens",
              [W_POSITIONS] = "biogpt.embed_positions",
              [W_FINAL_NORM] = "biogpt.layer_norm",
              [W_HEAD] = "output_projection",
              NAMES_FAIRSEQ("biogpt.layers.*.")},
    .configure = configure,
};
