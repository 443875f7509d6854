/* DeBERTa 1, 2, 3 and mDeBERTa 3 (arXiv 2006.03654, 2111.09543): BERT with disentangled attention
 * to content and relative position. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* pos_att_type is a list of words or one with | between them: both kinds, or it is not served. */
static void kinds(struct config *c)
{
    const cJSON *list = json_get(c->root, "pos_att_type"), *j;
    bool c2p = false, p2c = false;
    if (cJSON_IsString(list)) {
        c2p = strstr(list->valuestring, "c2p") != NULL;
        p2c = strstr(list->valuestring, "p2c") != NULL;
    }
    cJSON_ArrayForEach(j, list)
    {
        c2p = c2p || (cJSON_IsString(j) && strcmp(j->valuestring, "c2p") == 0);
        p2c = p2c || (cJSON_IsString(j) && strcmp(j->valuestring, "p2c") == 0);
    }
    if (!c2p || !p2c)
        config_fail(c, "`pos_att_type`: only c2p and p2c together are supported");
}

struct demand {
    const char *key;
    bool value; /* the only one that is served; absent, it is the other */
};
static void demand(struct config *c, const struct demand *d)
{
    if (config_bool_or(c, d->key, !d->value) != d->value)
        config_fail(c, "`%s`: only %s is supported", d->key, d->value ? "true" : "false");
}

/* Common to all. Three sums share the scale. */
static void common(struct config *c, struct decoder_spec *s)
{
    const double most = config_num_or(c, "max_relative_positions", -1);
    config_decoder(c, s, &(struct config_defaults){.max_positions = 512});
    config_sums(s, config_num_or(c, "layer_norm_eps", 1e-7));
    demand(c, &(struct demand){"relative_attention", true});
    demand(c, &(struct demand){"position_biased_input", false});
    kinds(c);
    if (config_u32_or(c, "type_vocab_size", 0, 0, 16))
        config_fail(c, "`type_vocab_size`: only 0 is supported");
    if (config_u32_or(c, "embedding_size", s->hidden, 1, 1u << 22) != s->hidden)
        config_fail(c, "`embedding_size`: only `hidden_size` is supported");
    config_only_word(c, "pooler_hidden_act", "gelu"); /* of the classifier */
    s->act = config_act(c, "hidden_act", "gelu");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->apart.most = most < 1 ? s->max_positions : (uint32_t)(most < 1 << 20 ? most : 1 << 20);
    if (s->apart.most > 1 << 20)
        config_fail(c, "`max_relative_positions` must be at most %d", 1 << 20);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = 1 / sqrtf(3 * (float)s->head_dim);
}

/* DeBERTa 2's convolution, whose default activation no file has. */
static void convolution(struct config *c, struct decoder_spec *s)
{
    s->first_conv = config_u32_or(c, "conv_kernel_size", 0, 0, 63);
    if (!s->first_conv)
        return;
    if (s->first_conv % 2 == 0)
        config_fail(c, "`conv_kernel_size` must be odd");
    if (config_u32_or(c, "conv_groups", 1, 1, 1u << 16) != 1)
        config_fail(c, "`conv_groups`: only 1 is supported");
    s->first_conv_act = config_act(c, "conv_act", "tanh");
}

/* What is absent has a default that is not served. */
static void configure(struct config *c, struct decoder_spec *s)
{
    common(c, s);
    demand(c, &(struct demand){"share_att_key", true});
    if (strcmp(config_str_or(c, "norm_rel_ebd", "none"), "layer_norm") != 0)
        config_fail(c, "`norm_rel_ebd`: only layer_norm is supported");
    convolution(c, s);
    if (config_u32_or(c, "attention_head_size", s->head_dim, 1, 1u << 22) != s->head_dim)
        config_fail(c, "`attention_head_size`: only hidden / heads is supported");
    s->apart.buckets = 2 * config_u32(c, "position_buckets", 4, 1u << 15);
    if (s->apart.buckets % 8 || s->apart.most < s->apart.buckets / 4 + 2)
        config_fail(c, "`position_buckets` must be a multiple of 4 below twice the positions");
}

/* q, k and v in one matrix by heads; a vector for each distance. */
static void configure_first(struct config *c, struct decoder_spec *s)
{
    common(c, s);
    config_only(c, "talking_head", false);
    s->qkv = QKV_GROUPED;
    s->apart.own = s->apart.each = true;
    s->apart.buckets = 2 * s->apart.most;
    if (s->apart.most % 2 || s->apart.most < 4)
        config_fail(c, "`max_relative_positions` must be even and at least 4");
}

#define LAYER "deberta.encoder.layer.*."
static const struct arch first = {
    .prefix = "deberta.",
    .names = {[W_EMBED] = "deberta.embeddings.word_embeddings",
              [W_EMBED_NORM] = "deberta.embeddings.LayerNorm",
              [W_APART] = "deberta.encoder.rel_embeddings",
              [W_APART_K] = LAYER "attention.self.pos_proj",
              [W_APART_Q] = LAYER "attention.self.pos_q_proj",
              [W_QKV] = LAYER "attention.self.in_proj",
              [W_Q_BIAS] = LAYER "attention.self.q_bias",
              [W_V_BIAS] = LAYER "attention.self.v_bias",
              [W_O] = LAYER "attention.output.dense",
              [W_POST_ATTN_NORM] = LAYER "attention.output.LayerNorm",
              [W_UP] = LAYER "intermediate.dense",
              [W_DOWN] = LAYER "output.dense",
              [W_POST_MLP_NORM] = LAYER "output.LayerNorm"},
    .configure = configure_first,
};

extern const struct arch arch_deberta;
static const struct arch *choose(struct config *c)
{
    return strcmp(json_str(c->root, "model_type", ""), "deberta") == 0 ? &first : &arch_deberta;
}

const struct arch arch_deberta = {
    .types = (const char *const[]){"deberta-v2", "deberta", NULL},
    .prefix = "deberta.",
    .names = {[W_EMBED] = "deberta.embeddings.word_embeddings",
              [W_EMBED_NORM] = "deberta.embeddings.LayerNorm",
              [W_APART] = "deberta.encoder.rel_embeddings",
              [W_APART_NORM] = "deberta.encoder.LayerNorm",
              [W_FIRST_CONV] = "deberta.encoder.conv.conv",
              [W_FIRST_CONV_NORM] = "deberta.encoder.conv.LayerNorm",
              [W_Q] = LAYER "attention.self.query_proj",
              [W_K] = LAYER "attention.self.key_proj",
              [W_V] = LAYER "attention.self.value_proj",
              [W_O] = LAYER "attention.output.dense",
              [W_POST_ATTN_NORM] = LAYER "attention.output.LayerNorm",
              [W_UP] = LAYER "intermediate.dense",
              [W_DOWN] = LAYER "output.dense",
              [W_POST_MLP_NORM] = LAYER "output.LayerNorm"},
    .configure = configure,
    .choose = choose,
};
