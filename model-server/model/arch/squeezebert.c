/* SqueezeBERT (arXiv 2006.11316): BERT with matrices stored as pointwise convolutions, most of them
 * grouped. */
#include "model-server/model/arch.h"

static const double NORM_EPS = 1e-12; /* in the layers, whatever the file says */

static uint32_t groups(struct config *c, const char *key, uint32_t def, uint32_t in, uint32_t out)
{
    const uint32_t n = config_u32_or(c, key, def, 1, 1u << 16);
    if (in % n || out % n)
        config_fail(c, "`%s`: %u groups do not divide %u and %u", key, n, in, out);
    return n;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_encoder(c, s, 0);
    config_masked_head(c, s, s->act);
    s->norm.post_eps = (float)NORM_EPS;
    s->groups = (struct group_spec){
        .q = groups(c, "q_groups", 4, s->hidden, s->hidden),
        .k = groups(c, "k_groups", 4, s->hidden, s->hidden),
        .v = groups(c, "v_groups", 4, s->hidden, s->hidden),
        .o = groups(c, "post_attention_groups", 1, s->hidden, s->hidden),
        .up = groups(c, "intermediate_groups", 4, s->hidden, s->ffn),
        .down = groups(c, "output_groups", 4, s->ffn, s->hidden),
    };
    if (config_u32_or(c, "embedding_size", s->hidden, 1, 1u << 22) != s->hidden)
        config_fail(c, "`embedding_size`: only `hidden_size` is supported");
}

#define LAYER "transformer.encoder.layers.*."
const struct arch arch_squeezebert = {
    .types = (const char *const[]){"squeezebert", NULL},
    .prefix = "transformer.",
    .names = {NAMES_BERT_TABLES("transformer."),
              NAMES_BERT_HEAD, [W_Q] = LAYER "attention.query", [W_K] = LAYER "attention.key",
              [W_V] = LAYER "attention.value", [W_O] = LAYER "post_attention.conv1d",
              [W_POST_ATTN_NORM] = LAYER "post_attention.layernorm",
              [W_UP] = LAYER "intermediate.conv1d", [W_DOWN] = LAYER "output.conv1d",
              [W_POST_MLP_NORM] = LAYER "output.layernorm"},
    .configure = configure,
};
