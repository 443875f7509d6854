/* Qwen4-Exp: Qwen 3.5 with experts, several residual streams joined by gates, embeddings of hashed
 * n-grams in some layers, and block-sparse attention selected by an indexer. Most checkpoints are
 * those of the vision model. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void streams(struct config *c, struct decoder_spec *s)
{
    s->mix.n = config_u32_or(c, "hc_count", 4, 2, MIX_MOST);
    s->mix.rank = config_u32_or(c, "hc_lowrank", 320, 1, 1u << 16);
    s->norms = NORM_NONE;
    s->no_final_norm = true;
}

static void indexer(struct config *c, struct decoder_spec *s)
{
    struct block_spec *b = &s->blocks;
    const uint32_t budget = config_u32(c, "indexer_budget", 1, 1u << 20);
    b->heads = config_u32(c, "indexer_n_heads", 1, 1024);
    b->dim = config_u32(c, "indexer_head_dim", 1, 1024);
    b->block = config_u32(c, "indexer_compress_ratio", 1, 4096);
    if (config_u32(c, "indexer_kv_heads", 1, 1u << 16) != 1)
        config_fail(c, "`indexer_kv_heads` must be 1");
    if (budget % b->block)
        config_fail(c, "`indexer_budget` must be a multiple of `indexer_compress_ratio`");
    if (s->rope[0].dim > b->dim)
        config_fail(c, "`indexer_head_dim` must be at least the rotated part of a head, %u",
                    s->rope[0].dim);
    b->top = budget / b->block + 1;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].by_blocks = s->layers[i].mixer == MIXER_ATTENTION;
}

/* The first of several. */
static uint32_t end_token(struct config *c, const struct decoder_spec *s)
{
    const cJSON *of = json_get(c->root, "eos_token_id");
    const cJSON *id = cJSON_IsArray(of) ? of->child : of;
    const double n = id && cJSON_IsNumber(id) ? id->valuedouble : -1;
    if (n >= 0 && n < s->vocab && n == (uint32_t)n)
        return (uint32_t)n;
    config_fail(c, "`eos_token_id`: `ple_layer_ids` needs an id below `vocab_size`");
    return 0;
}

/* Numbers of layers from 1 on. */
static uint32_t ngram_layers(struct config *c, struct decoder_spec *s)
{
    const cJSON *list = json_get(c->root, "ple_layer_ids"), *j;
    uint32_t n = 0;
    if (list && !cJSON_IsArray(list) && !cJSON_IsNull(list))
        config_fail(c, "`ple_layer_ids` must be a list");
    cJSON_ArrayForEach(j, list)
    {
        const double at = cJSON_IsNumber(j) ? j->valuedouble : 0;
        if (at < 1 || at > s->n_layers || at != (uint32_t)at) {
            config_fail(c, "`ple_layer_ids` must be numbers of layers from 1 on");
            return 0;
        }
        if (s->layers[(uint32_t)at - 1].mixer != MIXER_DELTA)
            config_fail(c, "`ple_layer_ids`: layer %u has no linear attention", (uint32_t)at);
        s->layers[(uint32_t)at - 1].ngrams = 1;
    }
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].ngrams)
            s->layers[i].ngrams = ++n;
    return n;
}

static void ngrams(struct config *c, struct decoder_spec *s)
{
    struct ngram_spec *g = &s->ngrams;
    const uint64_t most_rows = UINT32_MAX;
    if (!ngram_layers(c, s))
        return;
    g->most = config_u32_or(c, "ngram_size", 3, 2, NGRAM_IDS);
    g->each = config_u32_or(c, "heads_per_ngram", 8, 1, 1024);
    g->dim = config_u32_or(c, "ple_embed_dim", s->hidden, 1, 1u << 20);
    g->least = config_u32_or(c, "ngram_vocab_size_base", 20000000, 1, 1u << 30);
    g->multiple = config_u32_or(c, "make_ngram_vocab_size_divisible_by", 128, 1, 1u << 20);
    g->taps = config_u32_or(c, "ple_conv_kernel_size", 4, 2, CONV_MOST);
    g->seed = config_u32_or(c, "seed", 1234, 0, UINT32_MAX);
    g->end = end_token(c, s);
    const uint32_t tables = (g->most - 1) * g->each;
    if (g->dim % tables)
        config_fail(c, "`ple_embed_dim` must be a multiple of %u, the number of tables", tables);
    if ((uint64_t)tables * 2 * g->least > most_rows)
        config_fail(c, "`ngram_vocab_size_base`: %u tables are too large", tables);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_qwen_delta(c, s, 5632);
    const char *gate = config_str_or(c, "output_gate_type", "silu");
    s->recur.gate_sigmoid = strcmp(gate, "sigmoid") == 0;
    if (!s->recur.gate_sigmoid)
        config_only_word(c, "output_gate_type", "silu");
    streams(c, s);
    indexer(c, s);
    ngrams(c, s);
    config_qwen_experts(c, s, 512, 10);
    s->moe.renormalise = config_bool_or(c, "norm_topk_prob", true);
    config_moe_layers(s);
}

#define LAYER      "model.layers.*."
#define INDEX(of)  LAYER "self_attn.indexer." of
#define NGRAMS(of) LAYER "ple." of
#define TABLES     NGRAMS("ple_embedding.ngram_embedding.")
#define STREAMS(role, of)                                                                          \
    [role] = LAYER "attn_hyper_connection." of, [role##_FFN] = LAYER "mlp_hyper_connection." of

const struct arch arch_qwen4_exp = {
    .types = (const char *const[]){"qwen4_exp_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER,
              NAMES_LLAMA_QKV,
              NAMES_LLAMA_O,
              NAMES_EXPERTS,
              NAMES_QK_NORM,
              NAMES_DELTA,
              NAMES_QWEN_SHARED_EXPERT,
              [W_INDEX_Q] = INDEX("index_qk_proj"),
              [W_INDEX_Q_NORM] = INDEX("q_layernorm"),
              [W_INDEX_K_NORM] = INDEX("k_layernorm"),
              STREAMS(W_HYPER_NORM, "hc_norm"),
              STREAMS(W_HYPER_DOWN, "input_mix_weight_down"),
              STREAMS(W_HYPER_UP, "input_mix_weight_up"),
              STREAMS(W_HYPER_FACTORS, "block_inject_weight"),
              [W_HYPER_NORM_LAST] = "model.hyper_connection_mixer.hc_norm",
              [W_HYPER_DOWN_LAST] = "model.hyper_connection_mixer.input_mix_weight_down",
              [W_HYPER_UP_LAST] = "model.hyper_connection_mixer.input_mix_weight_up",
              [W_NGRAM_ROWS] = TABLES "shard_*.weight|" TABLES "weight",
              [W_NGRAM_KEY] = NGRAMS("key_proj"),
              [W_NGRAM_VALUE] = NGRAMS("value_proj"),
              [W_NGRAM_KEY_NORM] = NGRAMS("norm_key"),
              [W_NGRAM_STREAM_NORM] = NGRAMS("norm_query"),
              [W_NGRAM_CONV_NORM] = NGRAMS("norm_conv"),
              [W_NGRAM_CONV] = NGRAMS("conv1d")},
    .configure = configure,
};
