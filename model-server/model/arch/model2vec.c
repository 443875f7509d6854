/* Model2Vec: a table of token vectors without layers; a text's vector is their mean. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_sums(s, 1e-12);
    s->embed_norm = s->bias.norm = false;
    s->n_layers = 1; /* with nothing in it, so the numbers of heads only bound the ranks */
    s->n_heads = s->n_kv_heads = s->ffn = 64;
    s->head_dim = 16;
    s->layers[0] = (struct layer_spec){.mixer = MIXER_NONE, .no_ffn = true};
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    /* a checkpoint has no such keys: the tensors have the sizes (static_rows.h) */
    s->static_rows = true;
    s->vocab = config_u32_or(c, "vocab_size", 1024, 64, 1u << 24);
    s->hidden = config_u32_or(c, "hidden_size", 256, 1, 1u << 16);
}

const struct arch arch_model2vec = {
    .types = (const char *const[]){"model2vec", NULL},
    .prefix = "",
    .names = {[W_EMBED] = "embeddings"},
    .configure = configure,
};
