/* MobileBERT (arXiv 2004.02984): bottleneck layers that attend in a narrow stream, several
 * feed-forwards per layer, elementwise affine transforms instead of norms; an embedding of three
 * consecutive tokens. */
#include "model-server/model/arch.h"

/* The head for masked tokens: the embedding, and columns of its own for the rest of the width. */
static void head(struct config *c, struct decoder_spec *s)
{
    config_masked_head(c, s, s->act);
    s->head_more = s->hidden > s->embed_dim ? s->hidden - s->embed_dim : 0;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const uint32_t narrow = config_u32_or(c, "intra_bottleneck_size", 128, 4, 1u << 22);
    config_encoder(c, s, 0);
    s->act = config_act(c, "hidden_act", "relu");
    s->embed_dim = config_u32_or(c, "embedding_size", 128, 4, s->hidden);
    s->narrow = (struct narrow_spec){
        .width = narrow, .ffns = config_u32_or(c, "num_feedforward_networks", 4, 1, 64)};
    if (narrow % s->n_heads || narrow / s->n_heads % 2)
        config_fail(c, "`intra_bottleneck_size` must be an even multiple of the heads");
    if (narrow % 4 || narrow > s->hidden || s->embed_dim % 4)
        config_fail(c, "`intra_bottleneck_size` and `embedding_size` must be multiples of 4 up to "
                       "`hidden_size`");
    config_only(c, "trigram_input", true);
    config_only(c, "use_bottleneck", true);
    config_only(c, "key_query_shared_bottleneck", true);
    config_only(c, "use_bottleneck_attention", false);
    config_only_word(c, "normalization_type", "no_norm");
    s->head_dim = narrow / s->n_heads;
    s->norms = NORM_NONE;
    s->embed_norm = false;
    s->embed_trigram = true;
    head(c, s);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].mixer = MIXER_NARROW;
        s->layers[i].no_ffn = true;
        s->layers[i].attn_scale = spec_head_scale(s);
    }
}

#define LAYER "mobilebert.encoder.layer.*."
const struct arch arch_mobilebert = {
    .types = (const char *const[]){"mobilebert", NULL},
    .prefix = "mobilebert.",
    .names = {NAMES_BERT("mobilebert."), NAMES_BERT_HEAD, [W_HEAD_MORE] = "cls.predictions.dense",
              [W_EMBED_PROJECT] = "mobilebert.embeddings.embedding_transformation",
              [W_NARROW_IN] = LAYER "bottleneck.input.dense",
              [W_NARROW_IN_NORM] = LAYER "bottleneck.input.LayerNorm",
              [W_NARROW_QK] = LAYER "bottleneck.attention.dense",
              [W_NARROW_QK_NORM] = LAYER "bottleneck.attention.LayerNorm",
              [W_NARROW_UP] = LAYER "ffn.*.intermediate.dense",
              [W_NARROW_DOWN] = LAYER "ffn.*.output.dense",
              [W_NARROW_NORM] = LAYER "ffn.*.output.LayerNorm",
              [W_NARROW_OUT] = LAYER "output.bottleneck.dense",
              [W_NARROW_OUT_NORM] = LAYER "output.bottleneck.LayerNorm"},
    .configure = configure,
};
