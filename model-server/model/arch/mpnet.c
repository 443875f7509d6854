/* MPNet (arXiv 2004.09297): RoBERTa with a learned relative position bias. */
#include "model-server/model/arch.h"

enum { PADDING = 1, FARTHEST = 128 }; /* its code has these, whatever the file says */

static void configure(struct config *c, struct decoder_spec *s)
{
    config_encoder(c, s, PADDING + 1);
    config_masked_head(c, s, ACT_GELU);
    s->token_types = 0;
    s->near.buckets = config_u32_or(c, "relative_attention_num_buckets", 32, 4, 2 * FARTHEST);
    s->near.most = FARTHEST;
    if (s->near.buckets % 4)
        config_fail(c, "`relative_attention_num_buckets` must be a multiple of 4");
}

const struct arch arch_mpnet = {
    .types = (const char *const[]){"mpnet", NULL},
    .prefix = "mpnet.",
    .names = {NAMES_ROBERTA_HEAD, [W_EMBED] = "mpnet.embeddings.word_embeddings",
              [W_POSITIONS] = "mpnet.embeddings.position_embeddings",
              [W_EMBED_NORM] = "mpnet.embeddings.LayerNorm",
              [W_NEAR] = "mpnet.encoder.relative_attention_bias",
              [W_Q] = "mpnet.encoder.layer.*.attention.attn.q",
              [W_K] = "mpnet.encoder.layer.*.attention.attn.k",
              [W_V] = "mpnet.encoder.layer.*.attention.attn.v",
              [W_O] = "mpnet.encoder.layer.*.attention.attn.o",
              [W_POST_ATTN_NORM] = "mpnet.encoder.layer.*.attention.LayerNorm",
              [W_UP] = "mpnet.encoder.layer.*.intermediate.dense",
              [W_DOWN] = "mpnet.encoder.layer.*.output.dense",
              [W_POST_MLP_NORM] = "mpnet.encoder.layer.*.output.LayerNorm"},
    .configure = configure,
};
