/* T5 (arXiv 1910.10683), Flan-T5 (2210.11416), mT5 and UMT5 (2010.11934, 2304.09151), LongT5 with
 * bidirectional sliding windows in the encoder (2112.07916): pre-norm with RMS norms, no biases, a
 * relative position bias, a ReLU or gated MLP. The encoder alone (2112.07899), or the decoder,
 * which cross-attends to the encoder; text classifiers run both. Also the text model of BLIP-2. */
#include "common/json/json.h"
#include "common/text.h"
#include "model-server/model/arch.h"
#include <string.h>

extern const struct arch arch_t5;
static const struct arch decoder;

static bool classifies(const struct config *c)
{
    return ends_with(config_class(c, ""), "ForSequenceClassification");
}

/* By the class that a checkpoint was saved from. The bare models have no head, and classifiers of
 * tokens another one: they would be served as something that they are not. */
static const struct arch *choose(struct config *c)
{
    const char *name = config_class(c, "");
    if (ends_with(name, "EncoderModel"))
        return &arch_t5;
    /* the text model of BLIP-2 need not name its class */
    if (ends_with(name, "ForConditionalGeneration") || ends_with(name, "WithLMHeadModel") ||
        classifies(c) || (c->root != c->file && !*name))
        return &decoder;
    config_fail(c,
                "`architectures`: `%.60s`: only T5EncoderModel, T5ForConditionalGeneration and "
                "T5ForSequenceClassification, and those of mT5, UMT5 and LongT5, are supported",
                name);
    return NULL;
}

/* feed_forward_proj: an activation, or "gated-" and an activation. What transformers makes of it is
 * in its files, too, and is read instead of it. */
static void configure_mlp(struct config *c, struct decoder_spec *s, const char *def)
{
    static const char gated[] = "gated-";
    const char *key = "feed_forward_proj", *word = config_str_or(c, key, def);
    const size_t n = sizeof(gated) - 1;
    const bool gate = strncmp(word, gated, n) == 0;
    s->mlp = config_bool_or(c, "is_gated_act", gate) ? MLP_GATED : MLP_PLAIN;
    if (gate)
        word += n;
    if (gate && strcmp(word, "gelu") == 0)
        s->act = ACT_GELU_TANH; /* as the first gated models were trained */
    else
        s->act = config_act_word(c, key, word);
    if (json_get(c->root, "dense_act_fn"))
        s->act = config_act(c, "dense_act_fn", "relu");
}

/* With both_ways half of the buckets are for each direction, and half of those for one distance
 * each. */
static void configure_near(struct config *c, struct decoder_spec *s, const char *type)
{
    s->near.of = strcmp(type, "umt5") == 0 ? NEAR_OF_EACH : NEAR_OF_FIRST;
    s->near.buckets = config_u32_or(c, "relative_attention_num_buckets", 32, 4, 1u << 12);
    s->near.most = config_u32_or(c, "relative_attention_max_distance", 128, 2, 1u << 16);
    if (s->near.buckets % 4 || s->near.most <= s->near.buckets / (s->both_ways ? 4 : 2))
        config_fail(c,
                    "`relative_attention_num_buckets` must be a multiple of 4 and less than %d "
                    "times `relative_attention_max_distance`",
                    s->both_ways ? 4 : 2);
}

static bool is_long(const struct config *c)
{
    return strcmp(json_str(c->root, "model_type", ""), "longt5") == 0;
}

/* What both stacks share, but for the number of layers. */
static void configure_stack(struct config *c, struct decoder_spec *s)
{
    const char *type = json_str(c->root, "model_type", "");
    s->hidden = config_dim(c, "d_model");
    s->n_heads = s->n_kv_heads = config_heads(c, "num_heads");
    s->head_dim = config_u32_or(c, "d_kv", 64, 1, ROPE_MAX_DIM);
    s->ffn = config_dim(c, "d_ff");
    s->vocab = config_vocab(c, "vocab_size");
    s->norm = (struct norm_spec){.kind = NORM_RMS,
                                 .eps = (float)config_num_or(c, "layer_norm_epsilon", 1e-6)};
    configure_mlp(c, s, strcmp(type, "t5") == 0 || is_long(c) ? "relu" : "gated-gelu");
    configure_near(c, s, type);
    s->embed_scale = s->residual_scale = s->logit_scale = s->moe.scale = 1;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    struct layer_spec layer = {.attn_scale = 1, .mutual = MUTUAL_TOO};
    s->both_ways = s->no_head = true;
    configure_stack(c, s);
    s->n_layers = config_layers(c, "num_layers");
    s->max_positions = config_u32_or(c, "n_positions", 512, 1, 1u << 30);
    if (is_long(c)) { /* local_radius does not count the token itself */
        config_only_word(c, "encoder_attention_type", "local");
        layer.window = config_u32_or(c, "local_radius", 127, 1, 1u << 24) + 1;
        layer.mutual = MUTUAL_NONE;
    }
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i] = layer;
}

/* A head that is the embedding gets a scaled stream: in all of the first T5, and never in mT5.
 * Files of transformers 5 name it apart, because there every head may be the embedding. */
static void configure_head(struct config *c, struct decoder_spec *s)
{
    const bool mt5 = strcmp(json_str(c->root, "model_type", ""), "mt5") == 0;
    s->tied = config_bool_or(c, "tie_word_embeddings", true);
    if (config_bool_or(c, "scale_decoder_outputs", s->tied && !mt5))
        s->logit_scale = 1 / sqrtf((float)s->hidden);
    s->tied |= is_long(c); /* files whose key says otherwise may lack the head */
}

static void configure_decoder(struct config *c, struct decoder_spec *s)
{
    const uint32_t encoder = config_u32(c, "num_layers", 1, SPEC_MAX_LAYERS / 2);
    configure_stack(c, s);
    configure_head(c, s);
    s->no_head = classifies(c);
    s->start = config_u32_or(c, "decoder_start_token_id",
                             config_u32_or(c, "pad_token_id", 0, 0, s->vocab - 1), 0, s->vocab - 1);
    /* a text and an answer as long as those of the training; a bias by distance has no end */
    s->max_positions = 2 * config_u32_or(c, "n_positions", 512, 1, 1u << 29);
    s->n_layers = config_u32_or(c, "num_decoder_layers", encoder, 1, SPEC_MAX_LAYERS / 2);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i] = (struct layer_spec){.attn_scale = 1};
    config_pair_layers(c, s, "num_decoder_layers");
}

/* alone, in BLIP-2, and in classifiers */
#define PREFIX             "|language_model.|transformer."
#define NAMES_ATTENTION(p) [W_Q] = p ".q", [W_K] = p ".k", [W_V] = p ".v", [W_O] = p ".o"
#define NAMES_MLP(p)                                                                               \
    [W_MLP_NORM] = p ".layer_norm", [W_GATE] = p ".DenseReluDense.wi_0",                           \
    [W_UP] = p ".DenseReluDense.wi_1|" p ".DenseReluDense.wi", [W_DOWN] = p ".DenseReluDense.wo"

/* the second one is LongT5's */
#define NAMES_EITHER(role, end)                                                                    \
    [role] = "encoder.block.*.layer.0.SelfAttention" end                                           \
             "|encoder.block.*.layer.0.LocalSelfAttention" end

const struct arch arch_t5 = {
    .types = (const char *const[]){"t5", "mt5", "umt5", "longt5", NULL},
    .names = {[W_EMBED] = "shared|encoder.embed_tokens",
              NAMES_EITHER(W_NEAR, ".relative_attention_bias"),
              [W_ATTN_NORM] = "encoder.block.*.layer.0.layer_norm",
              NAMES_EITHER(W_Q, ".q"),
              NAMES_EITHER(W_K, ".k"),
              NAMES_EITHER(W_V, ".v"),
              NAMES_EITHER(W_O, ".o"),
              NAMES_MLP("encoder.block.*.layer.1"),
              [W_FINAL_NORM] = "encoder.final_layer_norm"},
    .prefix = PREFIX,
    .configure = configure,
    .choose = choose,
};

static const struct arch attends = {
    .names = {[W_ATTN_NORM] = "decoder.block.*.layer.1.layer_norm",
              NAMES_ATTENTION("decoder.block.*.layer.1.EncDecAttention"),
              NAMES_MLP("decoder.block.*.layer.2")},
    .prefix = PREFIX,
};
static const struct arch decoder = {
    .types = (const char *const[]){NULL}, /* see choose() */
    .names = {[W_EMBED] = "shared|decoder.embed_tokens",
              [W_HEAD] = "lm_head",
              [W_NEAR] = "decoder.block.*.layer.0.SelfAttention.relative_attention_bias",
              [W_ATTN_NORM] = "decoder.block.*.layer.0.layer_norm",
              NAMES_ATTENTION("decoder.block.*.layer.0.SelfAttention"),
              [W_FINAL_NORM] = "decoder.final_layer_norm"},
    .prefix = PREFIX,
    .second = &attends,
    .configure = configure_decoder,
    .encoder = &arch_t5,
};
