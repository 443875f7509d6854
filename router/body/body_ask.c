/* Members of a body that fill a struct ask: sampling parameters, biases, words. */
#include "common/json/json.h"
#include "common/params.h"
#include "router/body/body.h"
#include <string.h>

/* A token id in canonical form: "7", not "07", "+7" or "7.0". */
static bool token_id(const char *s, uint32_t *id)
{
    uint64_t v = 0;
    if (!*s || (*s == '0' && s[1]))
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || v > UINT32_MAX / 10)
            return false;
        v = v * 10 + (uint64_t)(*s - '0');
    }
    *id = (uint32_t)v;
    return v <= UINT32_MAX;
}

enum { BIAS_FORBIDS = -100 };

/* One entry: a member of OpenAI's map, or llama.cpp's pair [id, bias], where false forbids the
 * token. */
static bool bias_entry(struct body *b, struct object o, const char *key, const cJSON *v,
                       uint32_t *id, float *bias)
{
    const cJSON *pair = cJSON_IsArray(v) && cJSON_GetArraySize(v) == 2 ? v->child : NULL;
    const cJSON *value = pair ? pair->next : v;
    if (pair ? !cJSON_IsNumber(pair) || pair->valuedouble < 0 || pair->valuedouble > INT32_MAX
             : !v->string || !token_id(v->string, id)) {
        body_fail(b, o, key, "invalid key \"%.20s\", expected a token id",
                  v->string ? v->string : "");
        return false;
    }
    if (pair)
        *id = (uint32_t)pair->valuedouble;
    const bool forbids = pair && cJSON_IsFalse(value);
    if (!cJSON_IsNumber(value) && !forbids) {
        body_mistyped(b, o, key, value, "a number for each token id");
        return false;
    }
    *bias = forbids ? BIAS_FORBIDS : (float)value->valuedouble;
    return true;
}

void body_bias(struct body *b, struct object o, const char *key, struct ask *q)
{
    const cJSON *map = json_get(o.json, key);
    if (!map || b->failed)
        return;
    if (!cJSON_IsObject(map) && !cJSON_IsArray(map)) {
        body_mistyped(b, o, key, map, "a map of token ids to numbers");
        return;
    }
    uint32_t n = (uint32_t)cJSON_GetArraySize(map), i = 0;
    uint32_t *ids = ARENA_NEW(b->arena, uint32_t, n + 1);
    float *bias = ARENA_NEW(b->arena, float, n + 1);
    if (!ids || !bias) {
        body_nomem(b, o, key);
        return;
    }
    for (const cJSON *v = map->child; v; v = v->next, i++)
        if (!bias_entry(b, o, key, v, &ids[i], &bias[i]))
            return;
    q->bias_ids = ids;
    q->bias = bias;
    q->n_bias = n;
}

void body_tokens(struct body *b, struct object o, uint32_t max_input, struct ask *q)
{
    const cJSON *ids = json_get(o.json, "allowed_token_ids");
    struct opt_i64 keep = body_i32(b, o, "truncate_prompt_tokens");
    const char *side = body_str(b, o, "truncation_side", false);
    if (side && strcmp(side, "left") != 0)
        body_fail(b, o, "truncation_side",
                  "`truncation_side`: only `left` is supported, the end of a prompt is kept");
    if (ids && !cJSON_IsArray(ids))
        body_mistyped(b, o, "allowed_token_ids", ids, "a sequence");
    else if (ids && !ids->child)
        body_fail(b, o, "allowed_token_ids", "`allowed_token_ids` cannot be empty");
    else if (ids)
        q->allowed_ids = body_ids(b, o, "allowed_token_ids", ids, &q->n_allowed);
    if (keep.set && keep.v == -1) /* as many as fit */
        q->truncate = (struct opt_u64){max_input > 0, max_input};
    else if (keep.set && keep.v < 1)
        body_fail(b, o, "truncate_prompt_tokens", "`truncate_prompt_tokens` must be -1 or > 0");
    else if (keep.set)
        q->truncate = (struct opt_u64){true, (uint64_t)keep.v};
}

void body_logprob_ids(struct body *b, struct object o, struct ask *q)
{
    static const char key[] = "logprob_token_ids";
    const cJSON *ids = body_get(b, o, key, false);
    if (ids && !cJSON_IsArray(ids))
        body_mistyped(b, o, key, ids, "a sequence");
    else if (ids)
        q->logprob_ids = body_ids(b, o, key, ids, &q->n_logprob_ids);
}

void body_temperature(struct body *b, struct object o, struct ask *q)
{
    struct opt_f32 t = body_f32(b, o, "temperature");
    q->greedy = t.set && t.v == 0;
    q->do_sample = !q->greedy;
    if (!q->greedy)
        q->temperature = t;
}

void body_cuts(struct body *b, struct object o, const char *p, const char *k, struct ask *q)
{
    q->top_p = body_f32(b, o, p);
    if (q->top_p.set && q->top_p.v == 0) {
        q->greedy = true;
        q->do_sample = false;
    }
    if (q->top_p.v == 0)
        q->top_p.v = 1;
    q->top_k = body_i32(b, o, k);
    if (q->top_k.v == -1)
        q->top_k.v = 0;
}

#define READ_F32 body_f32
#define READ_U32 body_i32 /* accepts negative values; the range is checked later */
#define READ_I32 body_i32

void body_params(struct body *b, struct object o, bool tgi, struct ask *q)
{
#define PARAM(kind, type, name, member, neutral, low, high, taken, words, in_tgi, in_openai, ...)  \
    {                                                                                              \
        static const char *const keys[] = {in_openai, in_tgi};                                     \
        if (keys[tgi])                                                                             \
            q->name = READ_##type(b, o, keys[tgi]);                                                \
    }
#include "common/params.def"
    q->dry_breakers = body_strings(b, o, "dry_sequence_breakers", false, true, &q->n_dry_breakers);
    if (q->dry_breakers && !q->n_dry_breakers)
        body_fail(b, o, "dry_sequence_breakers", "`dry_sequence_breakers` cannot be empty");
}

bool ask_cuts(const struct ask *q)
{
    bool any = false;
#define PARAM(kind, type, name, ...) any |= PARAM_CUTS_##kind && q->name.set;
#include "common/params.def"
    return any;
}

/* A negative integer as read by cJSON: exact in the range that matters. */
static bool negative(struct object o, const char *key, int64_t *v)
{
    const cJSON *n = json_get(o.json, key);
    if (!cJSON_IsNumber(n) || !(n->valuedouble > -9007199254740992.0 && n->valuedouble < 0) ||
        n->valuedouble != (double)(int64_t)n->valuedouble)
        return false;
    *v = (int64_t)n->valuedouble;
    return true;
}

struct opt_u64 body_seed(struct body *b, struct object o, const char *key)
{
    int64_t v;
    if (!negative(o, key, &v))
        return body_u64(b, o, key);
    return (struct opt_u64){v != -1, (uint64_t)v};
}

struct opt_u64 body_length(struct body *b, struct object o, const char *key)
{
    int64_t v;
    if (!negative(o, key, &v))
        return body_u32(b, o, key);
    if (v != -1)
        body_fail(b, o, key, "`%s` must be > 0, or -1 for as many as there is room for", key);
    return (struct opt_u64){0};
}

void body_languages(struct body *b, struct object o, struct ask *q)
{
    q->src_lang = body_str(b, o, "src_lang", false);
    q->tgt_lang = body_str(b, o, "tgt_lang", false);
    q->forced_bos = body_u32(b, o, "forced_bos_token_id");
}

void body_ending(struct body *b, struct object o, const char *min, struct ask *q)
{
    const cJSON *ids = json_get(o.json, "stop_token_ids");
    q->ignore_eos = body_opt_bool(b, o, "ignore_eos", false);
    q->min_new_tokens = body_u32(b, o, min);
    if (ids && !cJSON_IsArray(ids))
        body_mistyped(b, o, "stop_token_ids", ids, "a sequence");
    else if (ids)
        q->stop_token_ids = body_ids(b, o, "stop_token_ids", ids, &q->n_stop_token_ids);
}
