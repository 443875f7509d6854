/* Converts metadata to config.json: the part shared by all families. */
#include "common/gguf/meta.h"
#include "common/gguf/pooling.h"
#include "common/gguf/projector.h"
#include "common/gguf/vocab.h"
#include <math.h>
#include <string.h>

static const char *path_of(const struct gguf_meta *m) { return m->s->files[0].path; }

/* A number that a file may give per layer. Here all layers have the same value, or 0 if the layer
 * lacks the feature. */
static int per_layer(const struct gguf_meta *m, const char *key, const char *to, struct err *e)
{
    const struct gguf_value *list = meta_numbers(m, key);
    const double most = gguf_family_number(m->s, m->f, key);
    if (m->f->by_layer)
        list = NULL;
    for (uint64_t i = 0; list && i < list->n; i++)
        if (gguf_number_at(list, i) != most && gguf_number_at(list, i) != 0)
            return err_set(e, ERR_VALIDATION,
                           "%s: `%s.%s` differs from layer to layer: not supported", path_of(m),
                           m->f->name, key);
    if (most > 0)
        meta_put(m, to, most);
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
        cJSON_AddItemToArray(list, cJSON_CreateNumber(isfinite(v) ? meta_as_written(v) : 0));
    }
    return true;
}

/* Llama 3's scaling is stored as the resulting factor per pair: a long rope with two equal
 * lists. */
static bool one_list(const struct gguf_meta *m, double positions)
{
    cJSON *r = cJSON_CreateObject();
    if (!factors(m->s, "rope_freqs.weight", r, "short_factor")) {
        cJSON_Delete(r);
        return false;
    }
    factors(m->s, "rope_freqs.weight", r, "long_factor");
    cJSON_AddStringToObject(r, "rope_type", "longrope");
    meta_put_in(r, "attention_factor", 1);
    meta_put_in(r, "original_max_position_embeddings", positions);
    cJSON_AddItemToObject(m->config, "rope_scaling", r);
    return true;
}

static bool two_lists(const struct gguf_meta *m, double positions)
{
    double v;
    cJSON *r = cJSON_CreateObject();
    if (!factors(m->s, "rope_factors_short.weight", r, "short_factor") ||
        !factors(m->s, "rope_factors_long.weight", r, "long_factor")) {
        cJSON_Delete(r);
        return false;
    }
    cJSON_AddStringToObject(r, "rope_type", "longrope");
    if (meta_number(m, "rope.scaling.attn_factor", &v))
        meta_put_in(r, "attention_factor", v);
    meta_put(m, "original_max_position_embeddings",
             meta_number_or(m, "rope.scaling.original_context_length", positions));
    cJSON_AddItemToObject(m->config, "rope_scaling", r);
    return true;
}

static void yarn(const struct gguf_meta *m, double factor, double positions, cJSON *r)
{
    double v;
    meta_put_in(r, "original_max_position_embeddings",
                meta_number_or(m, "rope.scaling.original_context_length", positions));
    if (meta_number(m, "rope.scaling.yarn_beta_fast", &v))
        meta_put_in(r, "beta_fast", v);
    if (meta_number(m, "rope.scaling.yarn_beta_slow", &v))
        meta_put_in(r, "beta_slow", v);
    if (meta_number(m, "rope.scaling.attn_factor", &v) && v != 1) /* multiplies the usual one */
        meta_put_in(r, "attention_factor", v * (factor > 1 ? 0.1 * log(factor) + 1 : 1));
}

static int rope_scaling(const struct gguf_meta *m, double positions, struct err *e)
{
    static const char key[] = "rope.scaling.type";
    struct gguf_str type = {"", 0};
    double factor =
        meta_number_or(m, "rope.scaling.factor", meta_number_or(m, "rope.scale_linear", 0));
    if (one_list(m, positions) || two_lists(m, positions))
        return 0;
    if (!meta_text(m, key, &type) && factor > 0)
        type = (struct gguf_str){"linear", 6};
    if (type.n == 0 || (type.n == 4 && memcmp(type.p, "none", 4) == 0))
        return 0;
    const bool linear = type.n == 6 && memcmp(type.p, "linear", 6) == 0;
    if (!linear && !(type.n == 4 && memcmp(type.p, "yarn", 4) == 0))
        return err_set(e, ERR_VALIDATION, "%s: `%s.%s` %.*s is not supported", path_of(m),
                       m->f->name, key, type.n > 40 ? 40 : (int)type.n, type.p);
    if (linear && !(factor > 0 && factor != 1)) /* 0 and 1: no scaling */
        return 0;
    cJSON *r = cJSON_AddObjectToObject(m->config, "rope_scaling");
    cJSON_AddStringToObject(r, "rope_type", linear ? "linear" : "yarn");
    meta_put_in(r, "factor", factor);
    if (!linear)
        yarn(m, factor, positions, r);
    return 0;
}

static int rope(const struct gguf_meta *m, double head_dim, struct err *e)
{
    const double positions = meta_number_or(m, "context_length", 0);
    const double dim = meta_number_or(m, "rope.dimension_count", head_dim);
    meta_put(m, "rope_theta", meta_number_or(m, "rope.freq_base", 10000));
    if (dim != head_dim && dim > 0 && head_dim > 0)
        meta_put(m, "partial_rotary_factor", meta_part(dim, head_dim));
    return rope_scaling(m, positions, e);
}

/* ---------------------------------------------------------------- config.json */

static int shape(const struct gguf_meta *m, struct err *e)
{
    static const char *const keys[][2] = {
        {"embedding_length", "hidden_size"},
        {"context_length", "max_position_embeddings"},
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
        {"attention.layer_norm_epsilon", "layer_norm_eps"},
        {"attention.layer_norm_epsilon", "norm_epsilon"},
        {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    };
    const struct gguf_tensor *embed = gguf_set_tensor(m->s, "token_embd.weight");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        meta_copy(m, keys[i][0], keys[i][1]);
    if (!embed)
        return err_set(e, ERR_VALIDATION, "%s: tensor `token_embd.weight` is missing", path_of(m));
    if (meta_layers(m) > 0)
        meta_put(m, "num_hidden_layers", meta_layers(m));
    meta_put(m, "vocab_size", (double)embed->dims[1]);
    cJSON_AddBoolToObject(m->config, "tie_word_embeddings", !meta_has(m, "output.weight"));
    return per_layer(m, "attention.head_count", "num_attention_heads", e) ||
                   per_layer(m, "attention.head_count_kv", "num_key_value_heads", e) ||
                   per_layer(m, "feed_forward_length", "intermediate_size", e)
               ? -1
               : 0;
}

double gguf_family_number(const struct gguf_set *s, const struct gguf_family *f, const char *key)
{
    const struct gguf_meta m = {s, f, NULL};
    const struct gguf_value *list = meta_numbers(&m, key);
    double most = meta_number_or(&m, key, 0);
    for (uint64_t i = 0; list && i < list->n; i++)
        most = gguf_number_at(list, i) > most ? gguf_number_at(list, i) : most;
    return most;
}

bool gguf_has_axes(const struct gguf_set *s, const struct gguf_family *f)
{
    return meta_numbers(&(struct gguf_meta){s, f, NULL}, "rope.dimension_sections");
}

uint32_t gguf_layers(const struct gguf_set *s, const struct gguf_family *f)
{
    const double n = meta_layers(&(struct gguf_meta){s, f, NULL});
    return n > 0 && n < GGUF_LAYERS_MAX ? (uint32_t)n : 0;
}

double gguf_head_size(const struct gguf_set *s, const struct gguf_family *f)
{
    const struct gguf_meta of = {s, f, NULL}, *m = &of;
    double hidden = meta_number_or(m, "embedding_length", 0);
    double heads = gguf_family_number(s, f, "attention.head_count");
    double usual = heads > 0 ? floor(hidden / heads) : 0;
    return meta_number_or(m, "attention.key_length", usual);
}

static int fill(const struct gguf_meta *m, struct err *e)
{
    const double dim = gguf_head_size(m->s, m->f);
    const bool moe = meta_number_or(m, "expert_count", 0) > 0;
    if (shape(m, e))
        return -1;
    if (!m->f->latent && !m->f->own_values &&
        meta_number_or(m, "attention.value_length", dim) != dim)
        return err_set(e, ERR_VALIDATION, "%s: heads of k and of v differ in size: not supported",
                       path_of(m));
    if (!m->f->both_ways && !meta_bool_or(m, "attention.causal", true))
        cJSON_AddBoolToObject(m->config, "is_causal", false);
    if (moe && !m->f->moe)
        return err_set(e, ERR_VALIDATION, "%s: experts in `%s` are not supported", path_of(m),
                       m->f->name);
    cJSON_AddStringToObject(m->config, "model_type", moe ? m->f->moe : m->f->type);
    if (dim > 0 && !m->f->latent)
        meta_put(m, "head_dim", dim);
    cJSON_AddStringToObject(cJSON_AddObjectToObject(m->config, "quantization_config"),
                            "quant_method", "gguf"); /* as in transformers */
    if (!m->f->own_positions &&
        rope(m, m->f->latent ? meta_number_or(m, "rope.dimension_count", dim) : dim, e))
        return -1;
    if (m->f->more)
        m->f->more(m);
    gguf_classifier(m);
    return 0;
}

cJSON *gguf_config(const struct gguf_set *s, struct err *e)
{
    const struct gguf_meta m = {s, gguf_family(s, e), cJSON_CreateObject()};
    if (m.f && !m.config)
        err_nomem(e);
    if (m.f && m.config && fill(&m, e) == 0)
        return gguf_has_projector(s) ? gguf_projector_config(&m, m.config, e) : m.config;
    cJSON_Delete(m.config);
    return NULL;
}

/* What its publisher recommends, under llama.cpp's keys. */
static void sampling(const struct gguf *g, cJSON *o)
{
    static const char *const rows[][2] = {
        {"general.sampling.temp", "temperature"},
        {"general.sampling.top_k", "top_k"},
        {"general.sampling.top_p", "top_p"},
        {"general.sampling.min_p", "min_p"},
        {"general.sampling.penalty_repeat", "repetition_penalty"}};
    double v;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (gguf_number(g, rows[i][0], &v))
            meta_put_in(o, rows[i][1], meta_as_written(v));
}

cJSON *gguf_generation_config(const struct gguf_set *s, struct err *e)
{
    struct gguf_vocab v;
    if (gguf_vocab_open(&v, &s->files[0], e))
        return NULL;
    cJSON *o = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(o, "eos_token_id");
    for (uint32_t i = 0; i < v.n_ends; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(v.ends[i]));
    if (v.bos >= 0)
        cJSON_AddNumberToObject(o, "bos_token_id", (double)v.bos);
    gguf_vocab_close(&v);
    if (o)
        sampling(&s->files[0], o);
    else
        err_nomem(e);
    return o;
}
