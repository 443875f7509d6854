/* Pre-norm BERT with a final norm: Megatron's (arXiv 1909.08053; GatorTron), XLM-RoBERTa XL and XXL
 * (2105.00572), and RoBERTa-PreLayerNorm (2202.08005), which also has a norm after the embedding.
 * */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void before(struct config *c, struct decoder_spec *s, uint32_t offset, bool embed_norm)
{
    config_encoder(c, s, offset);
    s->norms = NORM_BEFORE;
    s->no_final_norm = false;
    s->embed_norm = embed_norm;
}

static uint32_t behind_padding(struct config *c)
{
    return 1 + config_u32_or(c, "pad_token_id", 1, 0, 1u << 24);
}

static void megatron(struct config *c, struct decoder_spec *s) { before(c, s, 0, false); }
static void xl(struct config *c, struct decoder_spec *s) { before(c, s, behind_padding(c), false); }
static void fairseq(struct config *c, struct decoder_spec *s)
{
    before(c, s, behind_padding(c), true);
}

static const struct arch xlm_roberta_xl = {
    .prefix = "roberta.",
    .names = {NAMES_BERT_TABLES("roberta."), NAMES_BERT_MATRICES("roberta."),
              [W_ATTN_NORM] = "roberta.encoder.layer.*.attention.self_attn_layer_norm",
              [W_MLP_NORM] = "roberta.encoder.layer.*.LayerNorm",
              [W_FINAL_NORM] = "roberta.encoder.LayerNorm"},
    .configure = xl,
};

#define ROBERTA "roberta_prelayernorm."
static const struct arch roberta_prelayernorm = {
    .prefix = ROBERTA,
    .names = {NAMES_BERT_TABLES(ROBERTA), NAMES_BERT_MATRICES(ROBERTA),
              [W_ATTN_NORM] = ROBERTA "encoder.layer.*.attention.LayerNorm",
              [W_MLP_NORM] = ROBERTA "encoder.layer.*.intermediate.LayerNorm",
              [W_FINAL_NORM] = ROBERTA "LayerNorm"},
    .configure = fairseq,
};

extern const struct arch arch_megatron_bert;
static const struct arch *choose(struct config *c)
{
    const char *type = json_str(c->root, "model_type", "");
    if (strcmp(type, "xlm-roberta-xl") == 0)
        return &xlm_roberta_xl;
    return strcmp(type, "roberta-prelayernorm") == 0 ? &roberta_prelayernorm : &arch_megatron_bert;
}

const struct arch arch_megatron_bert = {
    .types = (const char *const[]){"megatron-bert", "xlm-roberta-xl", "roberta-prelayernorm", NULL},
    .prefix = "bert.",
    .names = {NAMES_BERT_TABLES("bert."),
              NAMES_BERT_MATRICES("bert."), [W_ATTN_NORM] = "bert.encoder.layer.*.attention.ln",
              [W_MLP_NORM] = "bert.encoder.layer.*.ln", [W_FINAL_NORM] = "bert.encoder.ln"},
    .configure = megatron,
    .choose = choose,
};
