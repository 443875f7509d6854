#include "model-server/model/config/config.h"
#include "common/gguf/set.h"
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "model-server/backend/act.h"
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CONFIG_MAX = 16 * 1024 * 1024 };

int config_open(struct config *c, const char *path, const char *text, struct err *e)
{
    *c = (struct config){.path = path, .e = e};
    c->file =
        text ? json_parse_python(text, strlen(text), e) : model_file_json(path, CONFIG_MAX, e);
    if (!c->file)
        return -1;
    c->root = (cJSON *)(uintptr_t)model_file_text_config(c->file);
    if (cJSON_IsObject(c->file))
        return 0;
    config_close(c);
    return err_set(e, ERR_VALIDATION, "%s: no JSON object", path);
}

void config_close(struct config *c)
{
    cJSON_Delete(c->file);
    c->file = c->root = NULL;
}

void config_fail(struct config *c, const char *fmt, ...)
{
    char msg[400];
    va_list ap;
    if (c->failed)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    for (char *p = msg; *p; p++) /* text from the file must not contain line breaks */
        if ((unsigned char)*p < ' ')
            *p = '?';
    c->failed = true;
    err_set(c->e, ERR_VALIDATION, "%s: %s", c->path, msg);
}

const struct config_key config_keys_gpt2[] = {{"hidden_size", "n_embd"},
                                              {"num_hidden_layers", "n_layer"},
                                              {"num_attention_heads", "n_head"},
                                              {"intermediate_size", "n_inner", true},
                                              {"num_key_value_heads", NULL},
                                              {"max_position_embeddings", "n_positions"},
                                              {NULL, NULL}};

/* The word of the file for a key. */
static const char *own(const struct config *c, const char *key)
{
    static const char none[] = "";
    const struct config_key *k = c->keys;
    while (k && k->usual && strcmp(k->usual, key) != 0)
        k++;
    if (!k || !k->usual)
        return key;
    if (!k->own)
        return none;
    return !k->only && !json_get(c->root, k->own) && json_get(c->root, key) ? key : k->own;
}

uint32_t config_u32_or(struct config *c, const char *key, uint32_t def, uint32_t min, uint32_t max)
{
    key = own(c, key);
    const cJSON *j = json_get(c->root, key);
    if (!j)
        return def;
    double v = cJSON_IsNumber(j) ? j->valuedouble : NAN;
    if (!(v >= min && v <= max) || v != floor(v)) {
        config_fail(c, "`%s` must be an integer from %u to %u", key, min, max);
        return min;
    }
    return (uint32_t)v;
}

uint32_t config_u32(struct config *c, const char *key, uint32_t min, uint32_t max)
{
    key = own(c, key);
    if (!json_get(c->root, key))
        config_fail(c, "`%s` is missing", key);
    return config_u32_or(c, key, min, min, max);
}

double config_num_or(struct config *c, const char *key, double def)
{
    key = own(c, key);
    const cJSON *j = json_get(c->root, key);
    if (!j)
        return def;
    if (cJSON_IsNumber(j) && isfinite(j->valuedouble))
        return j->valuedouble;
    config_fail(c, "`%s` must be a number", key);
    return def;
}

bool config_bool_or(struct config *c, const char *key, bool def)
{
    key = own(c, key);
    const cJSON *j = json_get(c->root, key);
    if (j && !cJSON_IsBool(j))
        config_fail(c, "`%s` must be true or false", key);
    return json_bool(c->root, key, def);
}

const char *config_str_or(struct config *c, const char *key, const char *def)
{
    key = own(c, key);
    const cJSON *j = json_get(c->root, key);
    if (j && !cJSON_IsString(j))
        config_fail(c, "`%s` must be a string", key);
    return json_str(c->root, key, def);
}

const char *config_either(const struct config *c, const char *key, const char *other)
{
    return json_get(c->root, key) ? key : other;
}

const char *config_class(const struct config *c, const char *def)
{
    const cJSON *first = cJSON_GetArrayItem(json_get(c->root, "architectures"), 0);
    return cJSON_IsString(first) ? first->valuestring : def;
}

const cJSON *config_object(struct config *c, const cJSON *in, const char *key)
{
    const cJSON *j = json_get(in, key);
    if (!j || cJSON_IsObject(j))
        return j;
    config_fail(c, "`%s` must be an object", key);
    return NULL;
}

void config_layer_norm(struct config *c, struct decoder_spec *s, const char *key, bool bias)
{
    s->norm = (struct norm_spec){.kind = NORM_LAYER, .eps = (float)config_num_or(c, key, 1e-5)};
    s->bias.norm = bias;
}

void config_only(struct config *c, const char *key, bool value)
{
    if (config_bool_or(c, key, value) != value)
        config_fail(c, "`%s`: %s is not supported", key, value ? "false" : "true");
}

void config_only_num(struct config *c, const char *key, double def, double value)
{
    if (config_num_or(c, key, def) != value)
        config_fail(c, "`%s` must be %g", key, value);
}

void config_only_word(struct config *c, const char *key, const char *word)
{
    const cJSON *j = json_get(c->root, key);
    if (j && (!cJSON_IsString(j) || strcmp(j->valuestring, word) != 0))
        config_fail(c, "`%s`: %.40s is not supported, only %s", key,
                    cJSON_IsString(j) ? j->valuestring : "what the file has", word);
}

enum act config_act_word(struct config *c, const char *key, const char *name)
{
    static const struct {
        const char *name;
        enum act act;
    } acts[] = {
        {"silu", ACT_SILU},           {"swish", ACT_SILU},
        {"gelu", ACT_GELU},           {"gelu_python", ACT_GELU},
        {"gelu_new", ACT_GELU_TANH},  {"gelu_pytorch_tanh", ACT_GELU_TANH},
        {"gelu_fast", ACT_GELU_TANH}, {"relu", ACT_RELU},
        {"relu2", ACT_RELU2},         {"quick_gelu", ACT_QUICK_GELU},
    };
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
        if (strcmp(acts[i].name, name) == 0)
            return acts[i].act;
    config_fail(c, "`%s`: activation `%.40s` is not supported", key, name);
    return ACT_SILU;
}

enum act config_act(struct config *c, const char *key, const char *def)
{
    return config_act_word(c, key, config_str_or(c, key, def));
}

enum act config_limited(struct config *c, const char *key, enum act kind, double limit)
{
    if (limit > 0 && limit < 1e30 && (double)(float)limit == limit && act_limit_fits((float)limit))
        return act_limited(kind, (float)limit);
    config_fail(c, "`%s`: %g is not supported", key, limit);
    return kind;
}

enum act config_act_limit(struct config *c, const char *key, enum act kind)
{
    return config_limited(c, key, kind, config_num_or(c, key, (double)act_limit(kind)));
}

uint32_t config_dim(struct config *c, const char *key) { return config_u32(c, key, 1, 1u << 22); }
uint32_t config_heads(struct config *c, const char *key) { return config_u32(c, key, 1, 1u << 16); }
uint32_t config_vocab(struct config *c, const char *key) { return config_u32(c, key, 1, 1u << 24); }
uint32_t config_layers(struct config *c, const char *key)
{
    return config_u32(c, key, 1, SPEC_MAX_LAYERS);
}

uint32_t config_head_dim(struct config *c, uint32_t def, uint32_t hidden, uint32_t heads)
{
    uint32_t d = config_u32_or(c, "head_dim", def, 1, ROPE_MAX_DIM);
    if (d)
        return d;
    if (hidden % heads || hidden / heads > ROPE_MAX_DIM) {
        config_fail(c, "%u heads do not divide a hidden size of %u", heads, hidden);
        return 1;
    }
    return hidden / heads;
}

/* What a GGUF file lacks is as llama.cpp takes it, not as a class. */
static bool of_gguf(const struct config *c)
{
    char file[PATH_MAX];
    const char *end = strrchr(c->path, '/');
    snprintf(file, sizeof(file), "%.*s", end ? (int)(end - c->path) : 0, c->path);
    return end && gguf_is_file(file);
}

void config_absent(struct config *c, const char *json)
{
    if (of_gguf(c))
        return;
    cJSON *all = cJSON_Parse(json);
    if (!all && !c->failed) {
        c->failed = true;
        err_nomem(c->e);
    }
    while (all && all->child) {
        cJSON *one = cJSON_DetachItemViaPointer(all, all->child);
        if (json_get(c->root, one->string))
            cJSON_Delete(one);
        else
            cJSON_AddItemToObject(c->root, one->string, one);
    }
    cJSON_Delete(all);
}

void config_absent_rope(struct config *c, const char *json)
{
    static const char *const keys[] = {"rope_parameters", "rope_scaling", "rope_theta"};
    bool said = c->rope_scaling != NULL;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        said |= json_get(c->root, keys[i]) != NULL;
    if (!said)
        config_absent(c, json);
}

void config_unpadded(struct config *c, struct decoder_spec *s, uint32_t def)
{
    const uint32_t used = config_u32_or(c, "unpadded_vocab_size", def, 1, 1u << 24);
    s->tied = false;
    if (used >= s->vocab)
        return;
    s->more_embeds = s->vocab - used;
    s->vocab = used;
}

void config_added(struct config *c, struct decoder_spec *s)
{
    const cJSON *at = json_get(model_file_vision_config(c->file), "deepstack_visual_indexes");
    s->n_added = cJSON_IsArray(at) ? (uint32_t)cJSON_GetArraySize(at) : 0;
    if (s->n_added > s->n_layers)
        config_fail(c, "`deepstack_visual_indexes`: %u for %u layers", s->n_added, s->n_layers);
}

void config_sines(struct config *c, struct decoder_spec *s, enum sines sines)
{
    s->sines = sines;
    if (sines && (s->hidden % 2 || s->hidden < 4))
        config_fail(c, "`d_model` must be even and at least 4");
}

void config_decoder(struct config *c, struct decoder_spec *s, const struct config_defaults *d)
{
    s->hidden = d->hidden ? config_u32_or(c, "hidden_size", d->hidden, 1, 1u << 22)
                          : config_dim(c, "hidden_size");
    const uint32_t ffn = d->ffn ? d->ffn : d->ffn_times * s->hidden;
    s->n_layers = d->layers ? config_u32_or(c, "num_hidden_layers", d->layers, 1, SPEC_MAX_LAYERS)
                            : config_layers(c, "num_hidden_layers");
    s->n_heads = d->heads ? config_u32_or(c, "num_attention_heads", d->heads, 1, 1u << 16)
                          : config_heads(c, "num_attention_heads");
    s->n_kv_heads = config_u32_or(c, "num_key_value_heads", d->kv_heads ? d->kv_heads : s->n_heads,
                                  1, 1u << 16);
    s->head_dim = config_head_dim(c, d->head_dim, s->hidden, s->n_heads);
    if (!d->ffn_by_layer)
        s->ffn = ffn ? config_u32_or(c, "intermediate_size", ffn, 1, 1u << 24)
                     : config_dim(c, "intermediate_size");
    s->vocab = d->vocab ? config_u32_or(c, "vocab_size", d->vocab, 1, 1u << 24)
                        : config_vocab(c, "vocab_size");
    s->max_positions = config_u32_or(c, "max_position_embeddings", d->max_positions, 1, 1u << 30);
    s->tied = config_bool_or(c, "tie_word_embeddings",
                             json_bool(c->file, "tie_word_embeddings", d->tied));
    /* transformers 5 asks the model that has the text model; a head that is stored is used anyway
     */
    s->tied |= c->root != c->file && json_bool(c->file, "tie_word_embeddings", false);
    s->norm = (struct norm_spec){.kind = NORM_RMS,
                                 .eps = (float)config_num_or(c, "rms_norm_eps", d->norm_eps)};
    s->mlp = MLP_GATED;
    s->embed_scale = s->residual_scale = s->logit_scale = s->moe.scale = 1;
    if (s->n_heads % s->n_kv_heads)
        config_fail(c, "%u key-value heads do not divide %u heads", s->n_kv_heads, s->n_heads);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i] = (struct layer_spec){.attn_scale = spec_head_scale(s)};
    if (d->rope_theta > 0) {
        s->rope[0].dim = config_rotary_dim(c, s->head_dim, d->rotary > 0 ? d->rotary : 1);
        config_rope(c, s, d->rope_theta);
    }
}

void config_llama(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
}

void config_sums(struct decoder_spec *s, double eps)
{
    s->norm = (struct norm_spec){.kind = NORM_LAYER, .eps = (float)eps};
    s->norms = NORM_SUM;
    s->bias.norm = s->embed_norm = s->no_final_norm = s->both_ways = s->no_head = true;
}

void config_type_rows(struct config *c, struct decoder_spec *s)
{
    const uint32_t types = config_u32_or(c, "type_vocab_size", 2, 0, 16);
    s->token_types = types;
    s->learned_positions = s->first_type_only = types > 0;
}

void config_embed_dim(struct config *c, struct decoder_spec *s)
{
    const uint32_t dim = config_u32_or(c, "embedding_size", s->hidden, 1, 1u << 22);
    if (dim > s->hidden || dim % 4)
        config_fail(c, "`%s` must be a multiple of 4 up to `hidden_size`",
                    own(c, "embedding_size"));
    s->embed_dim = dim;
}

void config_narrow_embed(struct config *c, struct decoder_spec *s)
{
    config_embed_dim(c, s);
    if (s->embed_dim == s->hidden)
        s->embed_dim = 0;
}

void config_bert(struct config *c, struct decoder_spec *s, uint32_t offset)
{
    const char *positions = config_str_or(c, "position_embedding_type", "absolute");
    config_decoder(c, s, &(struct config_defaults){.max_positions = 512, .norm_eps = 1e-12});
    s->act = config_act(c, "hidden_act", "gelu");
    config_sums(s, config_num_or(c, "layer_norm_eps", 1e-12));
    s->mlp = MLP_PLAIN;
    s->learned_positions = s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->token_types = config_u32_or(c, "type_vocab_size", 2, 1, 16);
    if (strcmp(positions, "absolute") != 0)
        config_fail(c, "`position_embedding_type`: `%.40s` is not supported", positions);
    if (s->max_positions <= offset)
        config_fail(c, "`max_position_embeddings` must be above %u", offset);
    s->position_offset = offset;
    s->max_positions = c->failed ? 1 : s->max_positions - offset;
}

void config_encoder(struct config *c, struct decoder_spec *s, uint32_t offset)
{
    config_bert(c, s, offset);
    config_only(c, "is_decoder", false);
}

void config_masked_head(struct config *c, struct decoder_spec *s, enum act act)
{
    s->tied = config_bool_or(c, "tie_word_embeddings", true);
    s->head_dense = s->head_dense_bias = s->bias.head = true;
    s->head_act = act;
}

/* For a key with a default: absent means the default, null means none. */
static bool present(const struct config *c, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(c->root, key) != NULL;
}

double config_softcap(struct config *c, const char *key, double def)
{
    double cap = config_num_or(c, key, present(c, key) ? 0 : def);
    if (cap < 0)
        config_fail(c, "`%s` must be positive", key);
    return cap;
}

void config_multipliers(struct config *c, struct decoder_spec *s)
{
    const double divisor = config_num_or(c, "logits_scaling", 1);
    if (divisor == 0)
        config_fail(c, "`logits_scaling` must not be 0");
    s->embed_scale = (float)config_num_or(c, "embedding_multiplier", 1);
    s->residual_scale = (float)config_num_or(c, "residual_multiplier", 1);
    s->logit_scale = (float)(1 / (divisor == 0 ? 1 : divisor));
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = (float)config_num_or(c, "attention_multiplier", 1);
}

void config_minicpm_factors(struct config *c, struct decoder_spec *s, double depth, double base)
{
    s->embed_scale = (float)config_num_or(c, "scale_emb", 1);
    s->residual_scale = (float)(config_num_or(c, "scale_depth", depth) / sqrt(s->n_layers));
    s->logit_scale = (float)(config_num_or(c, "dim_model_base", base) / s->hidden);
}

void config_gptj(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 2048, .ffn_times = 4});
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    s->rope[0].dim = config_u32_or(c, "rotary_dim", s->head_dim, 2, s->head_dim);
    s->rope[0].interleaved = true;
    if (s->rope[0].dim % 2)
        config_fail(c, "`rotary_dim` must be even");
    config_rope(c, s, 10000);
    s->act = config_act(c, "activation_function", "gelu_new");
    s->mlp = MLP_PLAIN;
    s->parallel = s->shared_norm = true;
    s->bias.mlp = s->bias.head = true;
}

void config_gemma(struct config *c, struct decoder_spec *s, double softcap)
{
    s->act = config_act(c, "hidden_activation", "gelu_pytorch_tanh");
    s->norms = NORM_AROUND;
    s->embed_scale = sqrtf((float)s->hidden);
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->logit_softcap = (float)config_softcap(c, "final_logit_softcapping", softcap);
}

void config_mutual_pictures(struct config *c, struct decoder_spec *s)
{
    for (uint32_t i = 0; model_file_vision_config(c->file) && i < s->n_layers; i++)
        s->layers[i].mutual = MUTUAL_TOO;
}

void config_attn_scale(struct config *c, struct decoder_spec *s, double def)
{
    double scalar = config_num_or(c, "query_pre_attn_scalar", def);
    if (!(scalar > 0))
        config_fail(c, "`query_pre_attn_scalar` must be positive");
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = (float)(1 / sqrt(scalar));
}

void config_moe(struct config *c, struct decoder_spec *s, uint32_t n, uint32_t top_k)
{
    const char *key = config_either(c, "num_local_experts", "num_experts");
    s->moe.n_experts = config_u32_or(c, key, n, 1, 4096);
    s->moe.top_k = config_u32_or(c, "num_experts_per_tok", top_k, 1, 4096);
    config_check_moe(c, s);
}

bool config_every_layer(struct config *c, uint32_t layer) { return (void)c, (void)layer, true; }

bool config_no_layer(struct config *c, uint32_t layer) { return (void)c, (void)layer, false; }

bool config_upper_layers(struct config *c, uint32_t layer)
{
    return config_bool_or(c, "use_sliding_window", false) &&
           layer >= config_num_or(c, "max_window_layers", 28);
}

void config_windows(struct config *c, struct decoder_spec *s, uint32_t def,
                    bool (*sliding)(struct config *c, uint32_t layer))
{
    const cJSON *t = config_layer_list(c, s, "layer_types");
    uint32_t window = def;
    if (present(c, "sliding_window"))
        window = config_u32_or(c, "sliding_window", 0, 0, UINT32_MAX);
    for (uint32_t i = 0; i < s->n_layers; i++, t = t ? t->next : NULL) {
        const char *kind = t ? cJSON_IsString(t) ? t->valuestring : "" : NULL;
        bool on = kind ? strcmp(kind, "sliding_attention") == 0 : sliding(c, i);
        if (kind && !on && strcmp(kind, "full_attention") != 0)
            config_fail(c, "`layer_types`: `%.40s` of layer %u is not supported", kind, i);
        s->layers[i].window = on ? window : 0;
    }
}
