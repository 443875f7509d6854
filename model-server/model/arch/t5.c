/* T5's encoder (arXiv 1910.10683, 2112.07899), and those of mT5 and UMT5 (arXiv 2010.11934,
 * 2304.09151): RMS norms before the branches, no biases, positions only as a number per distance,
 * a ReLU or a gated MLP. Models with the decoder, which generate, are refused. */
#include "common/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The class that a checkpoint was saved from must be the encoder alone: a text model of the whole
 * would be served as something that it is not. */
static void check_class(struct config *c)
{
    static const char encoder[] = "EncoderModel";
    const cJSON *word = cJSON_GetArrayItem(json_get(c->root, "architectures"), 0);
    const char *name = cJSON_IsString(word) ? word->valuestring : "";
    const size_t n = strlen(name), m = sizeof(encoder) - 1;
    if (n < m || strcmp(name + n - m, encoder) != 0)
        config_fail(c,
                    "`architectures`: `%.60s`: models of an encoder and a decoder are not "
                    "supported, only the encoder alone (T5EncoderModel)",
                    name);
}

/* feed_forward_proj: an activation, or "gated-" and an activation. */
static void configure_mlp(struct config *c, struct decoder_spec *s, const char *def)
{
    static const char gated[] = "gated-";
    const char *key = "feed_forward_proj", *word = config_str_or(c, key, def);
    const size_t n = sizeof(gated) - 1;
    const bool gate = strncmp(word, gated, n) == 0;
    s->mlp = gate ? MLP_GATED : MLP_PLAIN;
    if (gate && strcmp(word + n, "gelu") == 0)
        s->act = ACT_GELU_TANH; /* as the first gated models were trained */
    else if (strcmp(gate ? word + n : word, "relu") == 0)
        s->act = ACT_RELU;
    else if (strcmp(gate ? word + n : word, "silu") == 0)
        s->act = ACT_SILU;
    else
        config_fail(c, "`%s`: `%.40s` is not supported", key, word);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *type = json_str(c->root, "model_type", "");
    check_class(c);
    s->hidden = config_dim(c, "d_model");
    s->n_layers = config_layers(c, "num_layers");
    s->n_heads = s->n_kv_heads = config_heads(c, "num_heads");
    s->head_dim = config_u32_or(c, "d_kv", 64, 1, ROPE_MAX_DIM);
    s->ffn = config_dim(c, "d_ff");
    s->vocab = config_vocab(c, "vocab_size");
    s->max_positions = config_u32_or(c, "n_positions", 512, 1, 1u << 30);
    s->norm = (struct norm_spec){.kind = NORM_RMS,
                                 .eps = (float)config_num_or(c, "layer_norm_epsilon", 1e-6)};
    configure_mlp(c, s, strcmp(type, "t5") == 0 ? "relu" : "gated-gelu");
    s->near.of = strcmp(type, "umt5") == 0 ? NEAR_OF_EACH : NEAR_OF_FIRST;
    s->near.buckets = config_u32_or(c, "relative_attention_num_buckets", 32, 4, 1u << 12);
    s->near.most = config_u32_or(c, "relative_attention_max_distance", 128, 2, 1u << 16);
    if (s->near.buckets % 4 || s->near.most <= s->near.buckets / 4)
        config_fail(c, "`relative_attention_num_buckets` must be a multiple of 4 and less than 4 "
                       "times `relative_attention_max_distance`");
    s->embed_scale = s->residual_scale = s->logit_scale = s->moe.scale = 1;
    s->both_ways = s->no_head = true;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i] = (struct layer_spec){.attn_scale = 1};
}

const struct arch arch_t5 = {
    .types = (const char *const[]){"t5", "mt5", "umt5", NULL},
    .names = {[W_EMBED] = "shared|encoder.embed_tokens",
              [W_NEAR] = "encoder.block.*.layer.0.SelfAttention.relative_attention_bias",
              [W_ATTN_NORM] = "encoder.block.*.layer.0.layer_norm",
              [W_Q] = "encoder.block.*.layer.0.SelfAttention.q",
              [W_K] = "encoder.block.*.layer.0.SelfAttention.k",
              [W_V] = "encoder.block.*.layer.0.SelfAttention.v",
              [W_O] = "encoder.block.*.layer.0.SelfAttention.o",
              [W_MLP_NORM] = "encoder.block.*.layer.1.layer_norm",
              [W_GATE] = "encoder.block.*.layer.1.DenseReluDense.wi_0",
              [W_UP] = "encoder.block.*.layer.1.DenseReluDense.wi_1|"
                       "encoder.block.*.layer.1.DenseReluDense.wi",
              [W_DOWN] = "encoder.block.*.layer.1.DenseReluDense.wo",
              [W_FINAL_NORM] = "encoder.final_layer_norm"},
    .configure = configure,
};
