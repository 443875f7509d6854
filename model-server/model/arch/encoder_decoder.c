/* Pairs of encoders of BERT's kind (arXiv 1907.12461): BERT, BertGeneration, RoBERTa, XLM-RoBERTa
 * or CamemBERT twice, as an encoder and as a decoder with cross-attention. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Makes the object of one stack c->root. Returns its model_type, which is in `kinds`; NULL after an
 * error. */
static const char *enter(struct config *c, const char *stack)
{
    static const char *const kinds[] = {"bert", "bert-generation", "roberta", "xlm-roberta",
                                        "camembert"};
    const cJSON *own = config_object(c, c->file, stack);
    const char *type = json_str(own, "model_type", "");
    for (size_t i = 0; own && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(type, kinds[i]) == 0) {
            c->root = (cJSON *)(uintptr_t)own;
            return kinds[i];
        }
    if (!c->failed)
        config_fail(c,
                    "`%s`: `model_type`: `%.40s`: only bert, bert-generation, roberta, xlm-roberta "
                    "and camembert are supported",
                    stack, type);
    return NULL;
}

/* Rows of the table of positions that are not used. */
static uint32_t offset_of(struct config *c, const char *type)
{
    const bool plain = strcmp(type, "bert") == 0 || strcmp(type, "bert-generation") == 0;
    return plain ? 0 : 1 + config_u32_or(c, "pad_token_id", 1, 0, 1u << 24);
}

/* One stack, whose keys are in c->root. */
static void configure_stack(struct config *c, struct decoder_spec *s, const char *type)
{
    config_bert(c, s, offset_of(c, type));
    if (strcmp(type, "bert-generation") == 0)
        s->token_types = 0;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *type = enter(c, "encoder");
    if (!type)
        return;
    configure_stack(c, s, type);
    config_only(c, "is_decoder", false);
}

/* The head's words are BERT's, RoBERTa's with GELU, or those of BertGeneration without a layer. */
static void configure_head(struct config *c, struct decoder_spec *s, const char *type)
{
    s->no_head = false;
    config_masked_head(c, s, strcmp(type, "bert") == 0 ? s->act : ACT_GELU);
    if (strcmp(type, "bert-generation") == 0)
        s->head_dense = s->head_dense_bias = false;
}

static void configure_decoder(struct config *c, struct decoder_spec *s)
{
    const char *start = "decoder_start_token_id", *type = enter(c, "encoder");
    if (!type)
        return;
    const uint32_t vocab = config_vocab(c, "vocab_size"), offset = offset_of(c, type);
    const uint32_t positions =
        config_u32_or(c, "max_position_embeddings", 512, offset + 1, 1u << 30) - offset;
    if (!(type = enter(c, "decoder")))
        return;
    configure_stack(c, s, type);
    configure_head(c, s, type);
    if (s->vocab != vocab)
        config_fail(c, "`vocab_size` must be the same in `encoder` and `decoder`");
    s->both_ways = false;
    s->text_positions = positions;
    config_pair_layers(c, s, "num_hidden_layers");
    s->start = config_u32_or(c, "bos_token_id", UINT32_MAX, 0, UINT32_MAX);
    s->start = config_u32_or(c, start, s->start, 0, UINT32_MAX);
    c->root = c->file;
    s->start = config_u32_or(c, start, s->start, 0, UINT32_MAX);
    if (s->start >= s->vocab)
        config_fail(c, "`%s` is missing", start);
}

/* The names of one stack without its prefix. */
static const struct arch encoder = {
    .prefix = "encoder.",
    .names = {NAMES_BERT("encoder.")},
    .configure = configure,
};

#define PREFIX "decoder.bert.|decoder.roberta."
#define LAYER  "decoder.bert.encoder.layer.*."
#define NAMES_CROSS(p)                                                                             \
    [W_Q] = p "self.query", [W_K] = p "self.key", [W_V] = p "self.value", [W_O] = p "output.dense"
static const struct arch attends = {
    .prefix = PREFIX,
    .names = {NAMES_CROSS(LAYER "crossattention."),
              [W_POST_ATTN_NORM] = LAYER "crossattention.output.LayerNorm",
              [W_UP] = LAYER "intermediate.dense", [W_DOWN] = LAYER "output.dense",
              [W_POST_MLP_NORM] = LAYER "output.LayerNorm"},
};
const struct arch arch_encoder_decoder = {
    .types = (const char *const[]){"encoder-decoder", NULL},
    .prefix = PREFIX,
    .names = {NAMES_BERT_TABLES("decoder.bert."), NAMES_BERT_ATTENTION("decoder.bert."),
              [W_POST_ATTN_NORM] = LAYER "attention.output.LayerNorm",
              [W_HEAD_PROJECT] = "decoder.cls.predictions.transform.dense|decoder.lm_head.dense",
              [W_HEAD_NORM] =
                  "decoder.cls.predictions.transform.LayerNorm|decoder.lm_head.layer_norm",
              [W_HEAD] = "decoder.cls.predictions.decoder|decoder.lm_head.decoder",
              [W_HEAD_BIAS] = "decoder.cls.predictions.decoder.bias|decoder.cls.predictions.bias|"
                              "decoder.lm_head.decoder.bias|decoder.lm_head.bias"},
    .second = &attends,
    .configure = configure_decoder,
    .encoder = &encoder,
};
