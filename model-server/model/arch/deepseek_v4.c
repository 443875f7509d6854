/* DeepSeek V4: attention to a sliding window and to compressed entries of 4 or 128 tokens, several
 * residual streams, experts that the first layers select by a hash of the token id, a grouped
 * output projection. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

enum { WINDOW, CHOSEN, ALL, KINDS }; /* what a layer attends to beside its window */
enum { ROPE_TOKENS, ROPE_LONG, ROPE_CHOSEN, ROPE_ALL };
static const char *const kinds[KINDS] = {"sliding_attention", "compressed_sparse_attention",
                                         "heavily_compressed_attention"};

/* ---------------------------------------------------------------- layers */

/* By layer_types, else by compress_ratios of 0, 4 and 128, else two layers with long entries, then
 * both in turns. */
static int kind_of(struct config *c, const cJSON *word, uint32_t layer)
{
    const char *w = word && cJSON_IsString(word) ? word->valuestring : "";
    const cJSON *ratio = cJSON_GetArrayItem(json_get(c->root, "compress_ratios"), (int)layer);
    for (int i = 0; word && i < KINDS; i++)
        if (strcmp(w, kinds[i]) == 0)
            return i;
    if (word)
        config_fail(c, "layers of type `%.40s` are not supported", w);
    if (!word && ratio) {
        const double n = cJSON_IsNumber(ratio) ? ratio->valuedouble : -1;
        if (n != 0 && n != 4 && n != 128)
            config_fail(c, "`compress_ratios`: only 0, 4 and 128 are supported");
        return n == 0 ? WINDOW : n == 4 ? CHOSEN : ALL;
    }
    return layer < 2 || layer % 2 == 0 ? ALL : CHOSEN;
}

static uint32_t every(struct config *c, int kind)
{
    const cJSON *rates = config_object(c, c->root, "compress_rates");
    const char *key = kind == CHOSEN ? "compress_rate_csa" : "compress_rate_hca";
    const struct config in = {.path = c->path, .root = (cJSON *)(uintptr_t)rates, .e = c->e};
    struct config copy = in;
    uint32_t n = kind == CHOSEN ? 4 : 128;
    if (rates)
        n = config_u32_or(&copy, kinds[kind], n, 1, 4096);
    c->failed |= copy.failed;
    return config_u32_or(c, key, n, 1, 4096);
}

static void layers(struct config *c, struct decoder_spec *s)
{
    const cJSON *word = config_layer_list(c, s, "layer_types");
    const cJSON *ratios = json_get(c->root, "compress_ratios");
    if (!word && ratios && cJSON_GetArraySize(ratios) < (int)s->n_layers)
        config_fail(c, "`compress_ratios` must have a number for each layer");
    const uint32_t window = config_u32_or(c, "sliding_window", 128, 1, 1u << 30);
    for (uint32_t i = 0; i < s->n_layers; i++, word = word ? word->next : NULL) {
        struct layer_spec *l = &s->layers[i];
        const int kind = kind_of(c, word, i);
        l->mixer = MIXER_ENTRIES;
        l->window = window;
        l->attn_scale = spec_head_scale(s);
        l->chosen = kind == CHOSEN;
        l->every = kind == WINDOW ? 0 : every(c, kind);
        l->rope = kind == WINDOW ? ROPE_TOKENS : ROPE_LONG;
        l->entry_rope = kind == CHOSEN ? ROPE_CHOSEN : ROPE_ALL;
    }
}

/* ---------------------------------------------------------------- rotations */

/* Reads a rotation from its own keys. */
static struct rope_spec rotation(struct config *c, struct decoder_spec *s, const cJSON *keys,
                                 double theta)
{
    struct config of = *c;
    const double part = json_num(keys, "partial_rotary_factor", 0);
    if (part != 0 && config_rotary_part(c, s->head_dim, part) != s->entries.rope)
        config_fail(c, "rope `partial_rotary_factor`: %g is not that of the model", part);
    of.root = cJSON_CreateObject();
    cJSON_AddItemToObject(of.root, "rope_parameters", cJSON_Duplicate(keys, true));
    s->rope[0] = (struct rope_spec){.dim = s->entries.rope, .interleaved = true};
    config_rope(&of, s, theta);
    cJSON_Delete(of.root);
    c->failed |= of.failed;
    return s->rope[0];
}

/* One set of keys is for layers with entries; their own base and no factor of cosines are
 * implied. */
static struct rope_spec of_entries(struct config *c, struct decoder_spec *s, const cJSON *flat)
{
    const double theta = config_num_or(c, "compress_rope_theta", 160000);
    cJSON *keys = flat ? cJSON_Duplicate(flat, true) : cJSON_CreateObject();
    cJSON_DeleteItemFromObjectCaseSensitive(keys, "rope_theta");
    if (!json_get(keys, "attention_factor"))
        cJSON_AddNumberToObject(keys, "attention_factor", 1);
    const struct rope_spec r = rotation(c, s, keys, theta);
    cJSON_Delete(keys);
    return r;
}

static void rotations(struct config *c, struct decoder_spec *s)
{
    const cJSON *p = config_object(c, c->root, "rope_parameters");
    const cJSON *tokens = config_object(c, p, "main"), *entries = config_object(c, p, "compress");
    const bool both = tokens && entries;
    const double theta = config_num_or(c, "rope_theta", 10000);
    uint32_t chosen = 1, all = 1;
    cJSON *none = cJSON_CreateObject();
    const uint32_t positions = s->max_positions;
    const struct rope_spec main = rotation(c, s, both ? tokens : none, theta);
    s->max_positions = positions;
    if (!p)
        p = config_object(c, c->root, "rope_scaling");
    struct rope_spec far = both ? rotation(c, s, entries, 160000) : of_entries(c, s, p);
    cJSON_Delete(none);
    for (uint32_t i = 0; i < s->n_layers; i++)
        *(s->layers[i].chosen ? &chosen : &all) = s->layers[i].every ? s->layers[i].every : 1;
    s->rope[ROPE_TOKENS] = main;
    s->rope[ROPE_LONG] = s->rope[ROPE_CHOSEN] = s->rope[ROPE_ALL] = far;
    s->rope[ROPE_CHOSEN].behind = chosen - 1;
    s->rope[ROPE_ALL].behind = all - 1;
}

/* ---------------------------------------------------------------- the rest */

static void attention(struct config *c, struct decoder_spec *s)
{
    struct entries_spec *m = &s->entries;
    const double part = config_num_or(c, "partial_rotary_factor", 0);
    const uint32_t whole =
        config_u32_or(c, "qk_rope_head_dim", s->head_dim / 8, part != 0 ? 0 : 2, s->head_dim);
    m->q_rank = config_u32_or(c, "q_lora_rank", 1024, 1, 1u << 20);
    m->rope = part != 0 ? config_rotary_part(c, s->head_dim, part) : whole;
    m->groups = config_u32_or(c, "o_groups", 8, 1, s->n_heads);
    m->o_rank = config_u32_or(c, "o_lora_rank", 1024, 1, 1u << 20);
    m->index_heads = config_u32_or(c, "index_n_heads", 64, 1, 4096);
    m->index_dim = config_u32_or(c, "index_head_dim", 128, 1, 1024);
    m->index_top = config_u32_or(c, "index_topk", 512, 1, 1u << 20);
    if (m->rope % 2 || m->rope > m->index_dim)
        config_fail(c, "`qk_rope_head_dim` must be even and at most `index_head_dim`");
    if ((uint64_t)m->groups * m->o_rank > 1u << 24)
        config_fail(c, "`o_groups` * `o_lora_rank` must be at most 2^24");
    if (s->n_heads % m->groups)
        config_fail(c, "`o_groups` must divide `num_attention_heads`");
    if (s->n_kv_heads != 1)
        config_fail(c, "`num_key_value_heads`: only 1 is supported");
    s->sinks = SINKS_ALL;
    layers(c, s);
    rotations(c, s);
}

static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    const cJSON *word = config_layer_list(c, s, "mlp_layer_types");
    const uint32_t first = config_u32_or(c, "num_hash_layers", 3, 0, SPEC_MAX_LAYERS);
    const char *score = config_str_or(c, "scoring_func", "sqrtsoftplus");
    config_moe_layers(s);
    m->n_experts =
        config_u32_or(c, config_either(c, "n_routed_experts", "num_local_experts"), 256, 1, 65536);
    m->top_k = config_u32_or(c, "num_experts_per_tok", 6, 1, 64);
    m->ffn = m->shared_ffn = config_u32_or(c, "moe_intermediate_size", 2048, 1, 1u << 22);
    m->scale = (float)config_num_or(c, "routed_scaling_factor", 1.5);
    m->select_bias = m->renormalise = true;
    m->score = strcmp(score, "sigmoid") == 0 ? MOE_SIGMOID : MOE_SQRT_SOFTPLUS;
    if (m->score != MOE_SIGMOID && strcmp(score, "sqrtsoftplus") != 0)
        config_fail(c, "`scoring_func` `%.40s` is not supported", score);
    for (uint32_t i = 0; i < s->n_layers; i++, word = word ? word->next : NULL) {
        const char *w = word && cJSON_IsString(word) ? word->valuestring : "";
        s->layers[i].by_id = word ? strcmp(w, "hash_moe") == 0 : i < first;
        if (word && !s->layers[i].by_id && strcmp(w, "moe") != 0)
            config_fail(c, "`mlp_layer_types` of `%.40s` are not supported", w);
    }
    if (config_u32_or(c, "n_shared_experts", 1, 0, 4096) != 1)
        config_fail(c, "`n_shared_experts`: only 1 is supported");
    config_only(c, "norm_topk_prob", true);
    config_check_moe(c, s);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 512,
                                             .max_positions = 1048576,
                                             .norm_eps = 1e-6,
                                             .kv_heads = 1,
                                             .ffn = 2048});
    s->act = config_act_limit(c, "swiglu_limit", ACT_SILU_CLAMPED);
    config_only_word(c, "hidden_act", "silu");
    config_only(c, "attention_bias", false);
    config_only(c, "mlp_bias", false);
    attention(c, s);
    experts(c, s);
    s->mix.n = config_u32_or(c, "hc_mult", 4, 1, MIX_MOST);
    s->mix.rounds = config_u32_or(c, "hc_sinkhorn_iters", 20, 1, 1000);
    s->mix.floor = (float)config_num_or(c, "hc_eps", 1e-6);
    s->mix.magnitude = 2;
}

/* The names of transformers, then those of the repository. */
#define OF(v5, hub)      "model.layers.*." v5 "|model.layers.*." hub
#define ATTN(v5, hub)    OF("self_attn." v5, "attn." hub)
#define ENTRY(v5, hub)   OF("self_attn.compressor." v5, "attn.compressor." hub)
#define INDEX(v5, hub)   OF("self_attn.compressor.indexer." v5, "attn.indexer.compressor." hub)
#define STREAMS(v5, hub) OF(v5, "hc_" hub)
#define LAST(of)         "model.hc_head.hc_" of "|model.hc_head_" of
#define SHARED(v5, hub)  OF("mlp.shared_experts." v5, "ffn.shared_experts." hub)

const struct arch arch_deepseek_v4 = {
    .types = (const char *const[]){"deepseek_v4", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens|model.embed",
              [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head|head",
              [W_ATTN_NORM] = OF("input_layernorm", "attn_norm"),
              [W_MLP_NORM] = OF("post_attention_layernorm", "ffn_norm"),
              [W_Q_A] = ATTN("q_a_proj", "wq_a"),
              [W_Q_A_NORM] = ATTN("q_a_norm", "q_norm"),
              [W_Q_B] = ATTN("q_b_proj", "wq_b"),
              [W_KV_A] = ATTN("kv_proj", "wkv"),
              [W_KV_A_NORM] = ATTN("kv_norm", "kv_norm") "|model.layers.*.attn.norm",
              [W_SINKS] = ATTN("sinks", "attn_sink"),
              [W_O_A] = ATTN("o_a_proj", "wo_a"),
              [W_O] = ATTN("o_b_proj", "wo_b"),
              [W_ENTRY] = ENTRY("kv_proj", "wkv"),
              [W_ENTRY_NORM] = ENTRY("kv_norm", "norm"),
              [W_ENTRY_GATE] = ENTRY("gate_proj.weight", "wgate.weight"),
              [W_ENTRY_BIAS] = ENTRY("position_bias", "ape"),
              [W_INDEX_K] = INDEX("kv_proj", "wkv"),
              [W_INDEX_K_NORM] = INDEX("kv_norm", "norm"),
              [W_INDEX_POOL_GATE] = INDEX("gate_proj.weight", "wgate.weight"),
              [W_INDEX_POOL_BIAS] = INDEX("position_bias", "ape"),
              [W_INDEX_Q] = OF("self_attn.compressor.indexer.q_b_proj", "attn.indexer.wq_b"),
              [W_INDEX_WEIGHTS] = OF("self_attn.compressor.indexer.scorer.weights_proj",
                                     "attn.indexer.weights_proj"),
              [W_ROUTER] = OF("mlp.gate", "ffn.gate"),
              [W_SELECT_BIAS] = OF("mlp.gate.e_score_correction_bias", "ffn.gate.bias"),
              [W_EXPERT_IDS] = OF("mlp.gate.tid2eid", "ffn.gate.tid2eid"),
              [W_MOE_GATE] = OF("mlp.experts.*.gate_proj", "ffn.experts.*.w1"),
              [W_MOE_UP] = OF("mlp.experts.*.up_proj", "ffn.experts.*.w3"),
              [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_DOWN] = "model.layers.*.mlp.experts.down_proj|"
                             "model.layers.*.mlp.experts.*.down_proj|"
                             "model.layers.*.ffn.experts.*.w2",
              [W_SHARED_GATE] = SHARED("gate_proj", "w1"),
              [W_SHARED_UP] = SHARED("up_proj", "w3"),
              [W_SHARED_DOWN] = SHARED("down_proj", "w2"),
              [W_STREAM_MIX] = STREAMS("attn_hc.fn", "attn_fn"),
              [W_STREAM_BASE] = STREAMS("attn_hc.base", "attn_base"),
              [W_STREAM_SCALE] = STREAMS("attn_hc.scale", "attn_scale"),
              [W_STREAM_MIX_FFN] = STREAMS("ffn_hc.fn", "ffn_fn"),
              [W_STREAM_BASE_FFN] = STREAMS("ffn_hc.base", "ffn_base"),
              [W_STREAM_SCALE_FFN] = STREAMS("ffn_hc.scale", "ffn_scale"),
              [W_STREAM_MIX_LAST] = LAST("fn"),
              [W_STREAM_BASE_LAST] = LAST("base"),
              [W_STREAM_SCALE_LAST] = LAST("scale")},
    .configure = configure,
};
