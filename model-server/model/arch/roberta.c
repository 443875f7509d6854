/* RoBERTa, XLM-RoBERTa, CamemBERT (arXiv 1907.11692, 1911.02116), data2vec's text model
 * (2202.03555), I-BERT (2101.01321) in floating point, and LUKE (2010.01057) without entities: BERT
 * with positions that start after the padding index. Also Jina Reranker 2, Jina ColBERT 2 and Jina
 * Embeddings 3 with RoPE and their own tensor names. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

enum { MOST_INSIDE = 32, MOST_RANK = 64 };

/* LUKE's other classes classify entities, of which a text here has none. */
static void check_luke(struct config *c)
{
    static const char *const classes[] = {"LukeModel", "LukeForMaskedLM",
                                          "LukeForSequenceClassification"};
    const char *name = config_class(c, classes[0]);
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strcmp(name, classes[i]) == 0)
            return;
    config_fail(c, "`architectures`: `%.60s` is not supported", name);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_encoder(c, s, 1 + config_u32_or(c, "pad_token_id", 1, 0, 1u << 24));
    config_masked_head(c, s, ACT_GELU);
    config_only(c, "quant_mode", false); /* I-BERT in integers */
    if (strcmp(json_str(c->root, "model_type", ""), "luke") == 0)
        check_luke(c);
}

static void configure_flash(struct config *c, struct decoder_spec *s)
{
    configure(c, s);
    s->qkv = QKV_STACKED;
}

/* XLM-RoBERTa as Jina's repositories have it (Reranker 2). */
#define FLASH_LAYER "roberta.encoder.layers.*."
static const struct arch flash = {
    .prefix = "roberta.",
    .names = {NAMES_BERT_ROWS("roberta."), [W_EMBED_NORM] = "roberta.emb_ln",
              [W_QKV] = FLASH_LAYER "mixer.Wqkv", [W_O] = FLASH_LAYER "mixer.out_proj",
              [W_POST_ATTN_NORM] = FLASH_LAYER "norm1", [W_UP] = FLASH_LAYER "mlp.fc1",
              [W_DOWN] = FLASH_LAYER "mlp.fc2", [W_POST_MLP_NORM] = FLASH_LAYER "norm2"},
    .configure = configure_flash,
};

/* Jina Embeddings 3 has an adapter for each task inside the checkpoint. */
static void adapters_inside(struct config *c, struct decoder_spec *s)
{
    const cJSON *tasks = json_get(c->root, "lora_adaptations");
    if (!tasks || cJSON_IsNull(tasks))
        return;
    const int n = cJSON_IsArray(tasks) ? cJSON_GetArraySize(tasks) : 0;
    if (n < 1 || n > MOST_INSIDE)
        config_fail(c, "`lora_adaptations` must be a list of up to %d names", MOST_INSIDE);
    if (s->token_types > 1)
        config_fail(c, "`type_vocab_size`: with `lora_adaptations` only 1 is supported");
    s->inside = (struct inside_spec){.n = c->failed ? 0 : (uint32_t)n,
                                     .rank = config_u32_or(c, "lora_rank", 4, 1, MOST_RANK)};
    if (spec_inside_width(s) > s->hidden)
        config_fail(c, "`lora_rank`: %d adapters of rank %u are together wider than the model", n,
                    s->inside.rank);
}

/* The same with rotations in place of learned positions (Jina ColBERT 2, Jina Embeddings 3). */
static void configure_rotary(struct config *c, struct decoder_spec *s)
{
    const double theta = config_num_or(c, "rotary_emb_base", 10000);
    config_decoder(c, s, &(struct config_defaults){.max_positions = 8194, .rope_theta = theta});
    config_sums(s, config_num_or(c, "layer_norm_eps", 1e-12));
    config_type_rows(c, s);
    config_only(c, "rotary_emb_interleaved", false);
    if (config_num_or(c, "rotary_emb_dim", s->head_dim) != s->head_dim)
        config_fail(c, "`rotary_emb_dim`: only the width of a head is supported");
    if (config_num_or(c, "rotary_emb_scale_base", 0) != 0)
        config_fail(c, "`rotary_emb_scale_base` is not supported");
    adapters_inside(c, s);
    s->act = config_act(c, "hidden_act", "gelu");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->qkv = QKV_STACKED;
}

static const struct arch rotary = {
    .prefix = "roberta.",
    .parametrized = true,
    .names = {[W_EMBED] = "roberta.embeddings.word_embeddings",
              [W_EMBED_INSIDE] =
                  "roberta.embeddings.word_embeddings.parametrizations.weight.0.lora_A",
              [W_TOKEN_TYPES] = "roberta.embeddings.token_type_embeddings",
              [W_EMBED_NORM] = "roberta.emb_ln",
              [W_QKV] = FLASH_LAYER "mixer.Wqkv",
              [W_O] = FLASH_LAYER "mixer.out_proj",
              [W_POST_ATTN_NORM] = FLASH_LAYER "norm1",
              [W_UP] = FLASH_LAYER "mlp.fc1",
              [W_DOWN] = FLASH_LAYER "mlp.fc2",
              [W_POST_MLP_NORM] = FLASH_LAYER "norm2"},
    .configure = configure_rotary,
};

extern const struct arch arch_roberta;
static const struct arch *choose(struct config *c)
{
    const char *class = json_str(json_get(c->root, "auto_map"), "AutoConfig", "");
    const char *positions = json_str(c->root, "position_embedding_type", "absolute");
    if (!strstr(class, "XLMRobertaFlash"))
        return &arch_roberta;
    return strcmp(positions, "rotary") == 0 ? &rotary : &flash;
}

const struct arch arch_roberta = {
    .types = (const char *const[]){"roberta", "xlm-roberta", "camembert", "data2vec-text", "ibert",
                                   "luke", NULL},
    .prefix = "roberta.|data2vec_text.|ibert.|luke.",
    .names = {NAMES_BERT("roberta."), NAMES_ROBERTA_HEAD},
    .configure = configure,
    .choose = choose,
};
