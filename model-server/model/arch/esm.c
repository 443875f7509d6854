/* ESM-2 (https://doi.org/10.1126/science.ade2574) and ESM-1b, protein encoders: pre-norm BERT with
 * RoPE, or with learned positions that start after the padding index. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* In training a share of the tokens had embeddings of zeros, and the others are made smaller to
 * make up for it. A text with such tokens has another factor, and zeros. */
static void token_dropout(struct config *c, struct decoder_spec *s)
{
    enum { OF_TEXT = 15, MASKED = 80 }; /* percent: selected tokens, and how many of them are 0 */
    if (!config_bool_or(c, "token_dropout", false))
        return;
    s->embed_scale = 1 - OF_TEXT * MASKED / 1e4F;
    s->refuses_id = true;
    s->refused_id = config_u32(c, "mask_token_id", 0, s->vocab - 1);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool rotates =
        strcmp(config_str_or(c, "position_embedding_type", "absolute"), "rotary") == 0;
    config_only(c, "is_decoder", false);
    config_only(c, "is_folding_model", false);
    if (rotates)
        config_decoder(c, s, &(struct config_defaults){.max_positions = 1026, .rope_theta = 10000});
    else
        config_encoder(c, s, 1 + config_u32(c, "pad_token_id", 0, 1u << 24));
    config_sums(s, config_num_or(c, "layer_norm_eps", 1e-12));
    s->norms = NORM_BEFORE;
    s->no_final_norm = false;
    s->embed_norm = config_bool_or(c, "emb_layer_norm_before", false);
    s->mlp = MLP_PLAIN;
    s->act = ACT_GELU;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->token_types = 0;
    token_dropout(c, s);
}

#define LAYER "esm.encoder.layer.*."
const struct arch arch_esm = {
    .types = (const char *const[]){"esm", NULL},
    .prefix = "esm.",
    .names = {[W_EMBED] = "esm.embeddings.word_embeddings",
              [W_POSITIONS] = "esm.embeddings.position_embeddings",
              [W_EMBED_NORM] = "esm.embeddings.layer_norm",
              NAMES_BERT_MATRICES("esm."),
              [W_ATTN_NORM] = LAYER "attention.LayerNorm",
              [W_MLP_NORM] = LAYER "LayerNorm",
              [W_FINAL_NORM] = "esm.encoder.emb_layer_norm_after"},
    .configure = configure,
};
