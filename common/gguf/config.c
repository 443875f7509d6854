/* Metadata as config.json. What a key is called is llama.cpp's gguf-py/gguf/constants.py; what it
 * means is read off convert_hf_to_gguf.py, backwards. */
#include "common/buf.h"
#include "common/gguf/family.h"
#include "common/gguf/vocab.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_MAX = 160, LAYERS_MAX = 4096 };

/* ---------------------------------------------------------------- reading keys */

static const struct gguf *head(const struct gguf_set *s) { return &s->files[0]; }

/* "<architecture>.<key>" */
static const char *full(const struct gguf_family *f, const char *key, char out[KEY_MAX])
{
    snprintf(out, KEY_MAX, "%s.%s", f->name, key);
    return out;
}

/* Most numbers were decimal before they became 32 bits: 1e-5 again, not 9.99999974e-06. */
static double as_written(double v)
{
    char digits[32];
    for (int n = 6; n <= 9; n++) {
        snprintf(digits, sizeof(digits), "%.*g", n, v);
        if ((float)strtod(digits, NULL) == (float)v)
            return strtod(digits, NULL);
    }
    return v;
}

static bool number(const struct gguf_set *s, const struct gguf_family *f, const char *key,
                   double *out)
{
    char name[KEY_MAX];
    const struct gguf_value *v = gguf_find(head(s), full(f, key, name));
    if (!gguf_number(head(s), name, out))
        return false;
    if (v->type == GGUF_T_F32)
        *out = as_written(*out);
    return true;
}

static double number_or(const struct gguf_set *s, const struct gguf_family *f, const char *key,
                        double def)
{
    double v;
    return number(s, f, key, &v) ? v : def;
}

static bool has(const struct gguf_set *s, const char *tensor)
{
    return gguf_set_tensor(s, tensor) != NULL;
}

/* JSON has no other numbers; what is missing then is said by the family that needs it. */
static void put(cJSON *o, const char *key, double v)
{
    if (isfinite(v))
        cJSON_AddNumberToObject(o, key, v);
}

/* A number that files may give for each layer; here all layers have the same, or 0: those lack what
 * it counts. */
static int per_layer(const struct gguf_set *s, const struct gguf_family *f, const char *key,
                     cJSON *o, const char *to, struct err *e)
{
    char name[KEY_MAX];
    double v;
    const struct gguf_value *list = gguf_numbers(head(s), full(f, key, name));
    double most = 0;
    for (uint64_t i = 0; list && i < list->n; i++)
        most = gguf_number_at(list, i) > most ? gguf_number_at(list, i) : most;
    for (uint64_t i = 0; list && i < list->n; i++)
        if (gguf_number_at(list, i) != most && gguf_number_at(list, i) != 0)
            return err_set(e, ERR_VALIDATION, "%s: `%s` differs from layer to layer: not supported",
                           head(s)->path, name);
    if (list && list->n)
        put(o, to, most);
    else if (number(s, f, key, &v))
        put(o, to, v);
    return 0;
}

/* ---------------------------------------------------------------- rotary positions */

static bool factors(const struct gguf_set *s, const char *tensor, cJSON *o, const char *key)
{
    const struct gguf_tensor *t = gguf_set_tensor(s, tensor);
    if (!t || t->packing != GGUF_F32 || t->dims[0] > 4096 || t->bytes != t->dims[0] * 4)
        return false;
    cJSON *list = cJSON_AddArrayToObject(o, key);
    for (uint64_t i = 0; i < t->dims[0]; i++) {
        float v;
        memcpy(&v, t->data + i * 4, 4);
        cJSON_AddItemToArray(list, cJSON_CreateNumber(isfinite(v) ? as_written(v) : 0));
    }
    return true;
}

/* Llama 3's scaling is stored as what it comes to, a factor for each pair: that is a long rope
 * whose two lists are one. */
static bool one_list(const struct gguf_set *s, cJSON *config, double positions)
{
    cJSON *r = cJSON_CreateObject();
    if (!factors(s, "rope_freqs.weight", r, "short_factor")) {
        cJSON_Delete(r);
        return false;
    }
    factors(s, "rope_freqs.weight", r, "long_factor");
    cJSON_AddStringToObject(r, "rope_type", "longrope");
    put(r, "attention_factor", 1);
    put(r, "original_max_position_embeddings", positions);
    cJSON_AddItemToObject(config, "rope_scaling", r);
    return true;
}

static bool two_lists(const struct gguf_set *s, const struct gguf_family *f, cJSON *config,
                      double positions)
{
    double v;
    cJSON *r = cJSON_CreateObject();
    if (!factors(s, "rope_factors_short.weight", r, "short_factor") ||
        !factors(s, "rope_factors_long.weight", r, "long_factor")) {
        cJSON_Delete(r);
        return false;
    }
    cJSON_AddStringToObject(r, "rope_type", "longrope");
    if (number(s, f, "rope.scaling.attn_factor", &v))
        put(r, "attention_factor", v);
    put(config, "original_max_position_embeddings",
        number_or(s, f, "rope.scaling.original_context_length", positions));
    cJSON_AddItemToObject(config, "rope_scaling", r);
    return true;
}

static void yarn(const struct gguf_set *s, const struct gguf_family *f, double factor,
                 double positions, cJSON *r)
{
    double v;
    put(r, "original_max_position_embeddings",
        number_or(s, f, "rope.scaling.original_context_length", positions));
    if (number(s, f, "rope.scaling.yarn_beta_fast", &v))
        put(r, "beta_fast", v);
    if (number(s, f, "rope.scaling.yarn_beta_slow", &v))
        put(r, "beta_slow", v);
    if (number(s, f, "rope.scaling.attn_factor", &v) && v != 1) /* on top of the usual one */
        put(r, "attention_factor", v * (factor > 1 ? 0.1 * log(factor) + 1 : 1));
}

static int rope_scaling(const struct gguf_set *s, const struct gguf_family *f, cJSON *config,
                        double positions, struct err *e)
{
    char key[KEY_MAX];
    struct gguf_str type = {"", 0};
    double factor = number_or(s, f, "rope.scaling.factor", number_or(s, f, "rope.scale_linear", 0));
    if (one_list(s, config, positions) || two_lists(s, f, config, positions))
        return 0;
    if (!gguf_text(head(s), full(f, "rope.scaling.type", key), &type) && factor > 0)
        type = (struct gguf_str){"linear", 6};
    if (type.n == 0 || (type.n == 4 && memcmp(type.p, "none", 4) == 0))
        return 0;
    const bool linear = type.n == 6 && memcmp(type.p, "linear", 6) == 0;
    if (!linear && !(type.n == 4 && memcmp(type.p, "yarn", 4) == 0))
        return err_set(e, ERR_VALIDATION, "%s: `%s` %.*s is not supported", head(s)->path, key,
                       type.n > 40 ? 40 : (int)type.n, type.p);
    if (linear && !(factor > 0 && factor != 1)) /* 0 and 1: none */
        return 0;
    cJSON *r = cJSON_AddObjectToObject(config, "rope_scaling");
    cJSON_AddStringToObject(r, "rope_type", linear ? "linear" : "yarn");
    put(r, "factor", factor);
    if (!linear)
        yarn(s, f, factor, positions, r);
    return 0;
}

static int rope(const struct gguf_set *s, const struct gguf_family *f, cJSON *config,
                double head_dim, struct err *e)
{
    const double positions = number_or(s, f, "context_length", 0);
    const double dim = number_or(s, f, "rope.dimension_count", head_dim);
    put(config, "rope_theta", number_or(s, f, "rope.freq_base", 10000));
    if (dim != head_dim && dim > 0 && head_dim > 0) {
        double part = dim / head_dim;
        put(config, "partial_rotary_factor",
            floor(part * head_dim) < dim ? nextafter(part, 1) : part);
    }
    return rope_scaling(s, f, config, positions, e);
}

/* ---------------------------------------------------------------- families */

static void window(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    double v;
    if (number(s, f, "attention.sliding_window", &v) && v > 0)
        put(config, "sliding_window", v);
    else
        cJSON_AddNullToObject(config, "sliding_window");
}

static void qkv_bias(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    (void)f;
    cJSON_AddBoolToObject(config, "attention_bias", has(s, "blk.0.attn_q.bias"));
    cJSON_AddBoolToObject(config, "mlp_bias", has(s, "blk.0.ffn_up.bias"));
}

static void experts(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    double v;
    char key[KEY_MAX];
    put(config, "num_local_experts", number_or(s, f, "expert_count", 0));
    if (number(s, f, "expert_used_count", &v))
        put(config, "num_experts_per_tok", v);
    if (number(s, f, "expert_feed_forward_length", &v)) {
        put(config, "moe_intermediate_size", v);
        if (!cJSON_GetObjectItemCaseSensitive(config, "intermediate_size"))
            put(config, "intermediate_size", v);
    }
    cJSON_AddBoolToObject(config, "norm_topk_prob",
                          gguf_bool(head(s), full(f, "expert_weights_norm", key), true));
    cJSON_AddNullToObject(config, "sliding_window");
    cJSON *dense = cJSON_AddArrayToObject(config, "mlp_only_layers");
    for (int i = 0; i < number_or(s, f, "block_count", 0) && i < LAYERS_MAX; i++) {
        snprintf(key, sizeof(key), "blk.%d.ffn_gate_inp.weight", i);
        if (!has(s, key))
            cJSON_AddItemToArray(dense, cJSON_CreateNumber(i));
    }
}

static void llama(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    qkv_bias(s, f, config);
    if (number_or(s, f, "expert_count", 0) > 0)
        experts(s, f, config);
}

static void granite(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    static const char *const keys[][2] = {{"embedding_scale", "embedding_multiplier"},
                                          {"residual_scale", "residual_multiplier"},
                                          {"attention.scale", "attention_multiplier"},
                                          {"logit_scale", "logits_scaling"}};
    double v;
    qkv_bias(s, f, config);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (number(s, f, keys[i][0], &v))
            put(config, keys[i][1], v);
}

static void cohere(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    double v;
    qkv_bias(s, f, config);
    if (number(s, f, "logit_scale", &v))
        put(config, "logit_scale", v);
    cJSON_AddBoolToObject(config, "use_qk_norm", has(s, "blk.0.attn_q_norm.weight"));
}

static void starcoder2(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    cJSON_AddBoolToObject(config, "use_bias", has(s, "blk.0.attn_q.bias"));
    window(s, f, config);
}

static void stablelm(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    char key[KEY_MAX];
    cJSON_AddBoolToObject(config, "use_qkv_bias", has(s, "blk.0.attn_q.bias"));
    cJSON_AddBoolToObject(config, "qk_layernorm", has(s, "blk.0.attn_q_norm.weight"));
    cJSON_AddBoolToObject(config, "use_parallel_residual",
                          gguf_bool(head(s), full(f, "use_parallel_residual", key),
                                    !has(s, "blk.0.ffn_norm.weight")));
}

/* The file does not say what q.k is divided by. It is the root of the head's size, but for the
 * largest models, which llama.cpp too tells by their layers. */
static void attn_scale(const struct gguf_set *s, const struct gguf_family *f, cJSON *config,
                       double layers_of_27b)
{
    double heads = number_or(s, f, "attention.head_count", 1);
    double hidden = number_or(s, f, "embedding_length", 0);
    put(config, "query_pre_attn_scalar",
        number_or(s, f, "block_count", 0) == layers_of_27b
            ? hidden / heads
            : number_or(s, f, "attention.key_length", hidden / heads));
}

static void caps(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    static const char *const keys[][2] = {{"attn_logit_softcapping", "attn_logit_softcapping"},
                                          {"final_logit_softcapping", "final_logit_softcapping"}};
    double v;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (number(s, f, keys[i][0], &v) && v > 0)
            put(config, keys[i][1], v);
        else
            cJSON_AddNullToObject(config, keys[i][1]);
}

static void gemma2(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    window(s, f, config);
    caps(s, f, config);
    attn_scale(s, f, config, 46);
}

/* Every n-th layer sees everything; or a truth for each layer: it has the window. */
static void pattern(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    char key[KEY_MAX];
    const struct gguf_value *list =
        gguf_numbers(head(s), full(f, "attention.sliding_window_pattern", key));
    if (!list) {
        put(config, "sliding_window_pattern",
            number_or(s, f, "attention.sliding_window_pattern", 6));
        return;
    }
    cJSON *types = cJSON_AddArrayToObject(config, "layer_types");
    for (uint64_t i = 0; i < list->n && i < LAYERS_MAX; i++)
        cJSON_AddItemToArray(types,
                             cJSON_CreateString(gguf_number_at(list, i) != 0 ? "sliding_attention"
                                                                             : "full_attention"));
}

static void gemma3(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    window(s, f, config);
    caps(s, f, config);
    attn_scale(s, f, config, 62);
    pattern(s, f, config);
    put(config, "rope_local_base_freq", number_or(s, f, "rope.freq_base_swa", 10000));
}

static void cohere2(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    double v;
    qkv_bias(s, f, config);
    if (number(s, f, "logit_scale", &v))
        put(config, "logit_scale", v);
    window(s, f, config);
}

/* OLMo 2 has no window, OLMo 3 has one: that is how the two differ. */
static void olmo2(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    double v;
    if (number(s, f, "attention.sliding_window", &v) && v > 0) {
        put(config, "sliding_window", v);
        pattern(s, f, config);
    }
}

static void glm4(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    (void)f;
    cJSON_AddBoolToObject(config, "attention_bias", has(s, "blk.0.attn_q.bias"));
}

static void qwen2moe(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    char key[KEY_MAX];
    double v;
    experts(s, f, config);
    cJSON_DeleteItemFromObjectCaseSensitive(config, "norm_topk_prob");
    cJSON_AddBoolToObject(config, "norm_topk_prob",
                          gguf_bool(head(s), full(f, "expert_weights_norm", key), false));
    cJSON_AddBoolToObject(config, "qkv_bias", has(s, "blk.0.attn_q.bias"));
    if (number(s, f, "expert_shared_feed_forward_length", &v))
        put(config, "shared_expert_intermediate_size", v);
}

/* Layers behind the model's own are of the prediction of further tokens, which is not read. */
static double own_layers(const struct gguf_set *s, const struct gguf_family *f)
{
    return number_or(s, f, "block_count", 0) - number_or(s, f, "nextn_predict_layers", 0);
}

/* The experts of DeepSeek's family. */
static void deepseek_experts(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    static const char *const keys[][2] = {{"expert_count", "n_routed_experts"},
                                          {"expert_used_count", "num_experts_per_tok"},
                                          {"expert_feed_forward_length", "moe_intermediate_size"},
                                          {"expert_shared_count", "n_shared_experts"},
                                          {"expert_weights_scale", "routed_scaling_factor"},
                                          {"leading_dense_block_count", "first_k_dense_replace"},
                                          {"expert_group_count", "n_group"},
                                          {"expert_group_used_count", "topk_group"}};
    char key[KEY_MAX];
    double v;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (number(s, f, keys[i][0], &v))
            put(config, keys[i][1], v);
    cJSON_AddBoolToObject(config, "norm_topk_prob",
                          gguf_bool(head(s), full(f, "expert_weights_norm", key), true));
}

static void dots1(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    deepseek_experts(s, f, config);
    qkv_bias(s, f, config);
}

static void glm4moe(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    glm4(s, f, config);
    deepseek_experts(s, f, config);
    cJSON_AddBoolToObject(config, "use_qk_norm", has(s, "blk.0.attn_q_norm.weight"));
    cJSON_DeleteItemFromObjectCaseSensitive(config, "num_hidden_layers");
    put(config, "num_hidden_layers", own_layers(s, f));
}

static void ernie4_5(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    (void)f;
    cJSON_AddBoolToObject(config, "use_bias", has(s, "blk.0.attn_q.bias"));
}

/* Layers without keys and values are convolutions. */
static void lfm2(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    char key[KEY_MAX];
    const struct gguf_value *list = gguf_numbers(head(s), full(f, "attention.head_count_kv", key));
    cJSON *full_layers = cJSON_AddArrayToObject(config, "full_attn_idxs");
    for (uint64_t i = 0; list && i < list->n && i < LAYERS_MAX; i++)
        if (gguf_number_at(list, i) > 0)
            cJSON_AddItemToArray(full_layers, cJSON_CreateNumber((double)i));
    put(config, "norm_eps", number_or(s, f, "attention.layer_norm_rms_epsilon", 1e-5));
    put(config, "conv_L_cache", number_or(s, f, "shortconv.l_cache", 3));
    cJSON_AddBoolToObject(config, "block_auto_adjust_ff_dim", false);
    cJSON_AddBoolToObject(config, "conv_bias", has(s, "blk.0.shortconv.in_proj.bias"));
}

static void exaone4(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    char key[KEY_MAX];
    window(s, f, config);
    if (gguf_numbers(head(s), full(f, "attention.sliding_window_pattern", key)))
        pattern(s, f, config);
    else
        put(config, "sliding_window_pattern",
            number_or(s, f, "attention.sliding_window_pattern", 4));
}

static void olmoe(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    experts(s, f, config);
    cJSON_DeleteItemFromObjectCaseSensitive(config, "norm_topk_prob");
    cJSON_AddBoolToObject(config, "norm_topk_prob", false);
}

static void olmo(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    double v;
    if (number(s, f, "attention.clamp_kqv", &v) && v > 0)
        put(config, "clip_qkv", v);
}

static void layer_norms(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    double v;
    qkv_bias(s, f, config);
    if (number(s, f, "attention.layer_norm_epsilon", &v))
        put(config, "norm_eps", v);
}

/* Granite with MiniCPM's numbers; what llama.cpp multiplies q.k with is as usual. */
static void minicpm(const struct gguf_set *s, const struct gguf_family *f, cJSON *config)
{
    const double dim = gguf_head_size(s, f);
    granite(s, f, config);
    if (dim > 0)
        put(config, "attention_multiplier", 1 / sqrt(dim));
}

static const struct gguf_family families[] = {
    {"llama", "llama", "mixtral", true, 0, llama},
    {"qwen2", "qwen2", NULL, false, 0, NULL},
    {"qwen3", "qwen3", NULL, false, 0, qkv_bias},
    {"qwen3moe", "qwen3_moe", "qwen3_moe", false, 0, experts},
    {"gemma", "gemma", NULL, false, 1, NULL},
    {"gemma2", "gemma2", NULL, false, 1, gemma2},
    {"gemma3", "gemma3_text", NULL, false, 1, gemma3},
    {"phi3", "phi3", NULL, false, 0, window},
    {"granite", "granite", NULL, true, 0, granite},
    {"command-r", "cohere", NULL, false, 0, cohere},
    {"cohere2", "cohere2", NULL, false, 0, cohere2},
    {"olmo2", "olmo2", NULL, false, 0, olmo2},
    {"glm4", "glm4", NULL, false, 0, glm4},
    {"glm4moe", NULL, "glm4_moe", false, 0, glm4moe},
    {"smollm3", "smollm3", NULL, true, 0, qkv_bias},
    {"qwen2moe", NULL, "qwen2_moe", false, 0, qwen2moe},
    {"ernie4_5", "ernie4_5", NULL, false, 0, ernie4_5},
    {"lfm2", "lfm2", NULL, false, 0, lfm2},
    {"starcoder2", "starcoder2", NULL, false, 0, starcoder2},
    {"stablelm", "stablelm", NULL, false, 0, stablelm},
    {"exaone", "llama", NULL, false, 0, qkv_bias},
    {"exaone4", "exaone4", NULL, false, 0, exaone4},
    {"internlm2", "llama", NULL, true, 0, qkv_bias},
    {"minicpm", "granite", NULL, true, 0, minicpm},
    {"arcee", "arcee", NULL, true, 0, qkv_bias},
    {"nemotron", "nemotron", NULL, false, 1, layer_norms},
    {"jais2", "jais2", NULL, false, 0, layer_norms},
    {"seed_oss", "seed_oss", NULL, false, 0, qkv_bias},
    {"olmo", "olmo", NULL, true, 0, olmo},
    {"olmoe", NULL, "olmoe", false, 0, olmoe},
    {"dots1", NULL, "dots1", false, 0, dots1},
};
enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

const struct gguf_family *gguf_family(const struct gguf_set *s, struct err *e)
{
    struct gguf_str name;
    struct buf known = BUF_INIT;
    if (!gguf_text(head(s), "general.architecture", &name)) {
        err_set(e, ERR_VALIDATION, "%s: `general.architecture` is missing", head(s)->path);
        return NULL;
    }
    for (int i = 0; i < N_FAMILIES; i++)
        if (strlen(families[i].name) == name.n && memcmp(families[i].name, name.p, name.n) == 0)
            return &families[i];
    for (int i = 0; i < N_FAMILIES; i++)
        buf_fmt(&known, "%s%s", i ? ", " : "", families[i].name);
    err_set(e, ERR_VALIDATION, "%s: architecture `%.*s` is not read from GGUF (known: %s)",
            head(s)->path, name.n > 64 ? 64 : (int)name.n, name.p, known.p ? known.p : "");
    buf_free(&known);
    return NULL;
}

/* ---------------------------------------------------------------- config.json */

static int shape(const struct gguf_set *s, const struct gguf_family *f, cJSON *o, struct err *e)
{
    static const char *const keys[][2] = {
        {"embedding_length", "hidden_size"},
        {"block_count", "num_hidden_layers"},
        {"context_length", "max_position_embeddings"},
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
        {"attention.layer_norm_epsilon", "layer_norm_eps"},
        {"attention.layer_norm_epsilon", "norm_epsilon"},
    };
    const struct gguf_tensor *embed = gguf_set_tensor(s, "token_embd.weight");
    double v;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (number(s, f, keys[i][0], &v))
            put(o, keys[i][1], v);
    if (!embed)
        return err_set(e, ERR_VALIDATION, "%s: tensor `token_embd.weight` is missing",
                       head(s)->path);
    put(o, "vocab_size", (double)embed->dims[1]);
    cJSON_AddBoolToObject(o, "tie_word_embeddings", !has(s, "output.weight"));
    return per_layer(s, f, "attention.head_count", o, "num_attention_heads", e) ||
                   per_layer(s, f, "attention.head_count_kv", o, "num_key_value_heads", e) ||
                   per_layer(s, f, "feed_forward_length", o, "intermediate_size", e)
               ? -1
               : 0;
}

uint32_t gguf_layers(const struct gguf_set *s, const struct gguf_family *f)
{
    const double n = own_layers(s, f);
    return n > 0 && n < LAYERS_MAX ? (uint32_t)n : 0;
}

double gguf_head_size(const struct gguf_set *s, const struct gguf_family *f)
{
    double hidden = number_or(s, f, "embedding_length", 0);
    double heads = number_or(s, f, "attention.head_count", 0);
    double usual = heads > 0 ? floor(hidden / heads) : 0;
    return number_or(s, f, "attention.key_length", usual);
}

static int fill(const struct gguf_set *s, cJSON *o, struct err *e)
{
    const struct gguf_family *f = gguf_family(s, e);
    if (!f || shape(s, f, o, e))
        return -1;
    const double dim = gguf_head_size(s, f);
    const bool moe = number_or(s, f, "expert_count", 0) > 0;
    if (number_or(s, f, "attention.value_length", dim) != dim)
        return err_set(e, ERR_VALIDATION, "%s: heads of k and of v differ in size: not supported",
                       head(s)->path);
    if (moe && !f->moe)
        return err_set(e, ERR_VALIDATION, "%s: experts in `%s` are not supported", head(s)->path,
                       f->name);
    cJSON_AddStringToObject(o, "model_type", moe ? f->moe : f->type);
    if (dim > 0)
        put(o, "head_dim", dim);
    cJSON_AddStringToObject(cJSON_AddObjectToObject(o, "quantization_config"), "quant_method",
                            "gguf"); /* as transformers has it */
    if (rope(s, f, o, dim, e))
        return -1;
    if (f->more)
        f->more(s, f, o);
    return 0;
}

cJSON *gguf_config(const struct gguf_set *s, struct err *e)
{
    cJSON *o = cJSON_CreateObject();
    if (!o) {
        err_nomem(e);
        return NULL;
    }
    if (fill(s, o, e) == 0)
        return o;
    cJSON_Delete(o);
    return NULL;
}

cJSON *gguf_generation_config(const struct gguf_set *s, struct err *e)
{
    struct gguf_vocab v;
    if (gguf_vocab_open(&v, head(s), e))
        return NULL;
    cJSON *o = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(o, "eos_token_id");
    for (uint32_t i = 0; i < v.n_ends; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(v.ends[i]));
    if (v.bos >= 0)
        cJSON_AddNumberToObject(o, "bos_token_id", (double)v.bos);
    gguf_vocab_close(&v);
    if (!o)
        err_nomem(e);
    return o;
}
