/* Rotary parameters. Their places are `rope_parameters` (transformers 5), `rope_scaling` plus
 * top-level keys (transformers 4), or only top-level keys. `rope_num()` searches all of them. */
#include "common/json/json.h"
#include "model-server/model/config/config.h"
#include <math.h>
#include <string.h>

struct rope_keys {
    struct config *c;
    const cJSON *params; /* rope_parameters or rope_scaling, or NULL */
};

static struct rope_keys rope_keys(struct config *c)
{
    const cJSON *p = config_object(c, c->root, "rope_parameters");
    const cJSON *full = config_object(c, p, "full_attention"); /* one set per kind of layer */
    if (!p)
        p = config_object(c, c->root, "rope_scaling");
    return (struct rope_keys){c, full ? full : p};
}

static double rope_num(const struct rope_keys *k, const char *key, double def)
{
    const cJSON *j = json_get(k->params, key);
    if (!j)
        return config_num_or(k->c, key, def);
    if (cJSON_IsNumber(j) && isfinite(j->valuedouble))
        return j->valuedouble;
    config_fail(k->c, "rope `%s` must be a number", key);
    return def;
}

double config_rope_num(struct config *c, const char *key, double def)
{
    const struct rope_keys k = rope_keys(c);
    return rope_num(&k, key, def);
}

void config_q_growth(struct config *c, struct decoder_spec *s)
{
    const double beta = config_rope_num(c, "llama_4_scaling_beta", 0);
    const double length = config_rope_num(c, "original_max_position_embeddings", 0);
    if (beta == 0)
        return;
    if (!(length > 0)) {
        config_fail(c, "`llama_4_scaling_beta` without `original_max_position_embeddings`");
        return;
    }
    s->q_growth = (struct q_growth){.beta = beta, .length = length};
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].q_grows = true;
}

/* Length of the original training, within the limits of a position table. */
static uint32_t rope_original(const struct rope_keys *k, double def)
{
    double v = rope_num(k, "original_max_position_embeddings", def);
    if (v >= 2 && v <= 1u << 30)
        return (uint32_t)v;
    config_fail(k->c, "`original_max_position_embeddings` must be from 2 to 2^30");
    return 2;
}

static bool rope_bool(const struct rope_keys *k, const char *key, bool def)
{
    const cJSON *j = json_get(k->params, key);
    if (j && !cJSON_IsBool(j))
        config_fail(k->c, "rope `%s` must be true or false", key);
    return json_bool(k->params, key, def);
}

/* The kind of rotation, by its new or old name. */
static const char *rope_word(const struct rope_keys *k)
{
    const cJSON *j = json_get(k->params, "rope_type");
    if (!j)
        j = json_get(k->params, "type");
    if (j && !cJSON_IsString(j))
        config_fail(k->c, "rope `rope_type` must be a string");
    return j && cJSON_IsString(j) ? j->valuestring : "default";
}

static double rope_need(const struct rope_keys *k, const char *key, double min)
{
    double v = rope_num(k, key, NAN);
    if (!(v >= min))
        config_fail(k->c, "rope `%s` must be a number of at least %g", key, min);
    return v >= min ? v : min;
}

uint32_t config_rotary_dim(struct config *c, uint32_t head_dim, double def)
{
    struct rope_keys k = rope_keys(c);
    return config_rotary_part(c, head_dim, rope_num(&k, "partial_rotary_factor", def));
}

uint32_t config_rotary_part(struct config *c, uint32_t head_dim, double part)
{
    uint32_t dim = part > 0 && part <= 1 ? (uint32_t)((double)head_dim * part) : 0;
    if (dim == 0 || dim % 2)
        config_fail(c, "%g of a head of %u is no even number of rotated elements", part, head_dim);
    return dim;
}

/* Yarn whose factor of attention grows less with its own. */
static const double TELECHAT3_MSCALE = 0.7;
#define TELECHAT3_YARN "telechat3-yarn"

static enum rope_kind rope_kind(struct config *c, const char *word)
{
    static const struct {
        const char *word;
        enum rope_kind kind;
    } kinds[] = {
        {"default", ROPE_DEFAULT},      {"linear", ROPE_LINEAR},      {"dynamic", ROPE_DYNAMIC},
        {"llama3", ROPE_LLAMA3},        {"yarn", ROPE_YARN},          {"longrope", ROPE_LONGROPE},
        {"su", ROPE_LONGROPE},          {"mrope", ROPE_DEFAULT}, /* three equal positions: only text
                                                                  */
        {"proportional", ROPE_PARTIAL}, {"deepseek_yarn", ROPE_YARN}, {"ernie_3d", ROPE_DEFAULT},
        {TELECHAT3_YARN, ROPE_YARN},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].word, word) == 0)
            return kinds[i].kind;
    config_fail(c, "rope type `%.40s` is not supported", word);
    return ROPE_DEFAULT;
}

static void factors(const struct rope_keys *k, const char *key, uint32_t n, float *out)
{
    const cJSON *a = json_get(k->params, key), *j;
    uint32_t i = 0;
    if (!cJSON_IsArray(a) || (uint32_t)cJSON_GetArraySize(a) != n) {
        config_fail(k->c, "rope `%s` must be a list of %u numbers", key, n);
        return;
    }
    cJSON_ArrayForEach(j, a)
    {
        if (!cJSON_IsNumber(j) || !(j->valuedouble > 0) || !isfinite(j->valuedouble))
            config_fail(k->c, "rope `%s` must hold positive numbers", key);
        out[i++] = (float)j->valuedouble;
    }
}

static uint32_t stretched(uint32_t positions, double factor)
{
    return (uint32_t)fmin(positions * fmax(factor, 1), 1u << 30);
}

static double mscale(double scale, double m) { return scale <= 1 ? 1 : 0.1 * m * log(scale) + 1; }

static void yarn(const struct rope_keys *k, struct rope_spec *r, struct decoder_spec *s)
{
    r->original = rope_original(k, s->max_positions);
    r->factor = rope_num(k, "factor", (double)s->max_positions / r->original);
    if (!(r->factor > 0))
        config_fail(k->c, "rope `factor` must be positive");
    double m = rope_num(k, "mscale", 0), all = rope_num(k, "mscale_all_dim", 0);
    const char *word = json_str(k->params, "rope_type", json_str(k->params, "type", ""));
    const double own = strcmp(word, TELECHAT3_YARN) == 0 ? TELECHAT3_MSCALE : 1;
    r->attention_factor =
        rope_num(k, "attention_factor",
                 m != 0 && all != 0 ? mscale(r->factor, m) / mscale(r->factor, all)
                                    : mscale(r->factor, own));
    r->beta_fast = rope_num(k, "beta_fast", 32);
    r->beta_slow = rope_num(k, "beta_slow", 1);
    r->truncate = rope_bool(k, "truncate", true);
    s->max_positions = stretched(r->original, r->factor);
}

static void longrope(const struct rope_keys *k, struct rope_spec *r, const struct decoder_spec *s)
{
    /* The key beside max_position_embeddings takes precedence: Phi-3 sets both, and uses their
     * ratio. */
    const struct rope_keys top = {k->c, NULL};
    bool beside = json_get(k->c->root, "original_max_position_embeddings") != NULL;
    r->original = rope_original(beside ? &top : k, s->max_positions);
    double scale = (double)s->max_positions / r->original;
    if (!beside)
        scale = rope_num(k, "factor", scale);
    const double usual = scale <= 1 ? 1 : sqrt(1 + log(scale) / log((double)r->original));
    const double shorter = rope_num(k, "short_mscale", usual); /* Phi-3.5-MoE's own names */
    if (rope_num(k, "long_mscale", shorter) != shorter)
        config_fail(k->c, "rope `long_mscale` must be `short_mscale`");
    r->attention_factor = rope_num(k, "attention_factor", shorter);
    factors(k, "short_factor", r->dim / 2, r->short_factor);
    factors(k, "long_factor", r->dim / 2, r->long_factor);
}

static void scaling(const struct rope_keys *k, struct rope_spec *r, struct decoder_spec *s)
{
    switch (r->kind) {
    case ROPE_DYNAMIC:
    case ROPE_LINEAR:
        r->factor = k->c->rope_scaling ? k->c->rope_factor : rope_need(k, "factor", 1);
        r->original = s->max_positions;
        s->max_positions = stretched(s->max_positions, r->factor);
        break;
    case ROPE_LLAMA3:
        r->factor = rope_need(k, "factor", 1);
        r->low_freq = rope_need(k, "low_freq_factor", 0);
        r->high_freq = rope_need(k, "high_freq_factor", 0);
        r->original = rope_original(k, s->max_positions);
        break;
    case ROPE_YARN:
        yarn(k, r, s);
        break;
    case ROPE_LONGROPE:
        longrope(k, r, s);
        break;
    case ROPE_PARTIAL:
        r->turning = config_rotary_dim(k->c, r->dim, 1);
        if (rope_num(k, "factor", 1) != 1)
            config_fail(k->c, "rope `factor`: a proportional rotation is served without");
        break;
    default:
        break;
    }
}

double config_rope_mscale(struct config *c)
{
    struct rope_keys k = rope_keys(c);
    const char *word = rope_word(&k);
    const double all = rope_num(&k, "mscale_all_dim", 0);
    return strcmp(word, "default") == 0 || all == 0 ? 1 : mscale(rope_num(&k, "factor", 1), all);
}

/* The position (t, h or w) of each angle (M-RoPE, arXiv 2409.12191): runs of angles, or
 * (Qwen3-VL) h and w interleaved with t up to their lengths. */
void config_rope_axes(struct config *c, struct rope_spec *r, const cJSON *sections, bool turns)
{
    const cJSON *j;
    const uint32_t half = r->dim / 2;
    double n[3] = {0};
    int at = 0;
    cJSON_ArrayForEach(j, sections) if (at < 3 && cJSON_IsNumber(j)) n[at++] = j->valuedouble;
    if (at != 3 || cJSON_GetArraySize(sections) != 3 || !(n[0] >= 0 && n[1] >= 0 && n[2] >= 0) ||
        n[0] + n[1] + n[2] != half) {
        config_fail(c, "rope `mrope_section` must be 3 numbers whose sum is %u", half);
        return;
    }
    r->has_axes = true;
    for (uint32_t i = 0; i < half; i++)
        if (turns)
            r->axis[i] = i % 3 && i < 3 * n[i % 3] ? (uint8_t)(i % 3) : 0;
        else
            r->axis[i] = i < n[0] ? 0 : i < n[0] + n[1] ? 1 : 2;
}

static void axes(const struct rope_keys *k, struct rope_spec *r)
{
    const cJSON *sections = json_get(k->params, "mrope_section");
    const bool turns = rope_bool(k, "mrope_interleaved", false);
    if (sections)
        config_rope_axes(k->c, r, sections, turns);
}

void config_rope(struct config *c, struct decoder_spec *s, double theta)
{
    struct rope_keys k = rope_keys(c);
    struct rope_spec *r = &s->rope[0];
    const char *word = rope_word(&k);
    r->attention_factor = 1;
    r->theta = rope_num(&k, "rope_theta", theta);
    if (!(r->theta > 1))
        config_fail(c, "`rope_theta` must be above 1");
    r->kind = rope_kind(c, c->rope_scaling ? c->rope_scaling : word);
    scaling(&k, r, s);
    axes(&k, r);
    if (r->kind == ROPE_DYNAMIC && (r->dim <= 2 || r->original == 0))
        config_fail(c,
                    "dynamic rope needs more than 2 rotated elements and max_position_embeddings");
}
