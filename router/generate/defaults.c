#include "router/generate/defaults.h"
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "router/generate/suppress.h"
#include <stdio.h>
#include <string.h>

enum { FILE_MOST = 1 << 20 };

/* A row's name in the file: HF's, vLLM's and LMTP's are the same. NULL: it has none. */
#define NAMED(kind, in_tgi, in_lmtp) ((in_lmtp) ? (in_lmtp) : PARAM_CUTS_##kind ? (in_tgi) : NULL)
#define IS_WHOLE_F32                 false
#define IS_WHOLE_U32                 true
#define IS_WHOLE_I32                 true

static int refuse(const char *where, const char *key, const char *words, struct err *e)
{
    return err_set(e, ERR_VALIDATION,
                   "%s: `%s` must be %s (--generation-config none ignores the model's file)", where,
                   key, words);
}

/* A number at `key`; false with 0 in *rc: absent. */
static bool number(const cJSON *o, const char *where, const char *key, bool whole, double *v,
                   int *rc, struct err *e)
{
    const cJSON *n = json_get(o, key);
    if (!n || *rc)
        return false;
    *v = cJSON_IsNumber(n) ? n->valuedouble : 0;
    if (!cJSON_IsNumber(n) || !(*v >= -1e9 && *v <= 1e9) || (whole && *v != (double)(int64_t)*v))
        *rc = refuse(where, key, whole ? "a whole number" : "a number", e);
    return *rc == 0;
}

/* 0 as temperature takes the most likely token; -1 as `top_k` is off. */
static double usual(const char *key, double v) { return !strcmp(key, "top_k") && v == -1 ? 0 : v; }

static const char forced[] = "forced_bos_token_id";

static int read_forced(const cJSON *o, const char *where, struct sampling_defaults *d,
                       struct err *e)
{
    double n;
    int rc = 0;
    if (!number(o, where, forced, true, &n, &rc, e))
        return rc;
    if (n < 0)
        return refuse(where, forced, "a token", e);
    d->forced_bos_token_id = (struct opt_u64){true, (uint64_t)n};
    return 0;
}

static int read_rows(const cJSON *o, const char *where, struct sampling_defaults *d, struct err *e)
{
    const bool tgi = false;
    int rc = 0;
    double n;
#define PARAM(kind, type, name, member, neutral, low, high, taken, words, in_tgi, in_openai,       \
              in_lmtp, ...)                                                                        \
    {                                                                                              \
        const char *key = NAMED(kind, in_tgi, in_lmtp);                                            \
        if (key && number(o, where, key, IS_WHOLE_##type, &n, &rc, e)) {                           \
            const PARAM_V_##type v = (PARAM_V_##type)usual(key, n);                                \
            if (!(taken) && v != (PARAM_V_##type)neutral &&                                        \
                !(v == 0 && !strcmp(key, "temperature")))                                          \
                rc = refuse(where, key, words, e);                                                 \
            d->name = (PARAM_OPT_##type){true, v};                                                 \
        }                                                                                          \
    }
#include "common/params.def"
    if (number(o, where, "max_new_tokens", true, &n, &rc, e)) {
        if (n < 1)
            rc = refuse(where, "max_new_tokens", "strictly positive", e);
        d->max_new_tokens = (struct opt_u64){true, (uint64_t)n};
    }
    if (number(o, where, "min_new_tokens", true, &n, &rc, e)) {
        if (n < 0)
            rc = refuse(where, "min_new_tokens", "a number of tokens", e);
        d->min_new_tokens = (struct opt_u64){n > 0, (uint64_t)n};
    }
    (void)tgi;
    return rc || read_forced(o, where, d, e) ? -1 : 0;
}

/* What only the model's file has. */
static int read_whole(const cJSON *o, const char *where, struct sampling_defaults *d, struct err *e)
{
    suppress_ignored(o, d->ignored, sizeof(d->ignored));
    return read_rows(o, where, d, e) || suppress_read(o, where, &d->never, e) ? -1 : 0;
}

static bool is_row(const char *key)
{
#define PARAM(kind, type, name, member, neutral, low, high, taken, words, in_tgi, in_openai,       \
              in_lmtp, ...)                                                                        \
    {                                                                                              \
        const char *name_ = NAMED(kind, in_tgi, in_lmtp);                                          \
        if (name_ && !strcmp(key, name_))                                                          \
            return true;                                                                           \
    }
#include "common/params.def"
    return !strcmp(key, "max_new_tokens") || !strcmp(key, "min_new_tokens") || !strcmp(key, forced);
}

static int read_override(const char *text, struct sampling_defaults *d, struct err *e)
{
    static const char where[] = "--override-generation-config";
    cJSON *o = json_parse(text, strlen(text), e);
    int rc = o ? 0 : err_wrap(e, where);
    if (o && !cJSON_IsObject(o))
        rc = err_set(e, ERR_VALIDATION, "%s: expected a JSON object", where);
    for (const cJSON *k = o && !rc ? o->child : NULL; k && !rc; k = k->next)
        if (!is_row(k->string))
            rc = err_set(e, ERR_VALIDATION, "%s: `%.60s` is no sampling parameter of this server",
                         where, k->string);
    if (!rc)
        rc = read_rows(o, where, d, e);
    cJSON_Delete(o);
    return rc;
}

static int read_file(const char *dir, bool needed, struct sampling_defaults *d, struct err *e)
{
    char path[4096];
    if (snprintf(path, sizeof(path), "%s/generation_config.json", dir) >= (int)sizeof(path))
        return err_set(e, ERR_VALIDATION, "%.80s..: path too long", dir);
    const bool old = !needed && !model_file_exists(path);
    if (old)
        snprintf(path, sizeof(path), "%s/config.json", dir);
    if (old && !model_file_exists(path))
        return 0;
    cJSON *o = model_file_json(path, FILE_MOST, e);
    int rc = !o ? -1 : old ? read_forced(o, path, d, e) : read_whole(o, path, d, e);
    cJSON_Delete(o);
    return rc;
}

int defaults_load(struct sampling_defaults *out, const char *dir, const char *source,
                  const char *override, struct err *e)
{
    const bool own = !strcmp(source, "auto");
    const bool none = !strcmp(source, "vllm") || !strcmp(source, "none") || !*source;
    *out = (struct sampling_defaults){0};
    if (!none && read_file(own ? dir : source, !own, out, e))
        return own ? -1 : err_wrap(e, "--generation-config");
    return override && *override ? read_override(override, out, e) : 0;
}

void defaults_free(struct sampling_defaults *d) { suppress_free(&d->never); }

void defaults_apply(const struct sampling_defaults *d, struct ask *q)
{
    if (!q->greedy && !q->temperature.set && d->temperature.set && d->temperature.v == 0) {
        q->greedy = true;
        q->do_sample = false;
    }
#define PARAM(kind, type, name, ...)                                                               \
    if (!q->name.set)                                                                              \
        q->name = d->name;
#include "common/params.def"
    if (q->temperature.v == 0) /* a default: a client's own 0 is `greedy` */
        q->temperature.set = false;
    if (d->max_new_tokens.set &&
        (!q->max_new_tokens.set || q->max_new_tokens.v > d->max_new_tokens.v))
        q->max_new_tokens = d->max_new_tokens;
    if (!q->min_new_tokens.set && !q->n_stop && !q->n_stop_token_ids) { /* they would wait, too */
        q->min_new_tokens = d->min_new_tokens;
        if (q->max_new_tokens.set && q->min_new_tokens.v > q->max_new_tokens.v)
            q->min_new_tokens.v = q->max_new_tokens.v;
    }
}

static void member(struct buf *out, size_t from, const char *key, double v)
{
    buf_fmt(out, v == (double)(int64_t)v ? "%s\"%s\":%.0f" : "%s\"%s\":%.6g",
            out->len > from ? "," : "", key, v);
}

void defaults_print(const struct sampling_defaults *d, struct buf *out)
{
    const size_t from = out->len;
#define PARAM(kind, type, name, member_, neutral, low, high, taken, words, in_tgi, in_openai,      \
              in_lmtp, ...)                                                                        \
    if (d->name.set && NAMED(kind, in_tgi, in_lmtp))                                               \
        member(out, from, NAMED(kind, in_tgi, in_lmtp), (double)d->name.v);
#include "common/params.def"
    if (d->max_new_tokens.set)
        member(out, from, "max_new_tokens", (double)d->max_new_tokens.v);
    if (d->min_new_tokens.set)
        member(out, from, "min_new_tokens", (double)d->min_new_tokens.v);
}
