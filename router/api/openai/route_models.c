#include "router/api/openai/google_models.h"
#include "router/call/call.h"
#include <inttypes.h>
#include <string.h>

static void quoted(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

struct known {     /* of a loaded model; otherwise zero but for the time */
    int64_t since; /* when the server began to serve, in seconds since 1970 */
    uint32_t length;
    bool eyes; /* it takes images */
    uint32_t vocab, hidden;
    uint64_t parameters, bytes; /* 0: unknown */
};

static struct known known_of(const struct edge *g)
{
    const struct infer_limits *l = edge_limits(g);
    return (struct known){.since = g->started_unix,
                          .length = l->max_total_tokens,
                          .eyes = l->takes_images && g->vision,
                          .vocab = l->vocab_size,
                          .hidden = l->hidden_size,
                          .parameters = l->parameters,
                          .bytes = l->weight_bytes};
}

/* `base`: the base model of an adapter; NULL for a model. */
static void model(struct buf *out, const char *id, const char *base, struct known k)
{
    buf_str(out, "{\"id\":");
    quoted(out, id);
    buf_fmt(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":", (long long)k.since);
    quoted(out, id);
    buf_str(out, ",\"root\":");
    quoted(out, base ? base : id);
    buf_str(out, ",\"parent\":");
    if (base)
        quoted(out, base);
    else
        buf_str(out, "null");
    if (k.eyes)
        buf_str(out, ",\"input_modalities\":[\"text\",\"image\"]");
    if (k.bytes) /* llama-server's */
        buf_fmt(out,
                ",\"meta\":{\"n_vocab\":%u,\"n_embd\":%u,\"n_params\":%" PRIu64 ",\"size\":%" PRIu64
                "}",
                k.vocab, k.hidden, k.parameters, k.bytes);
    if (k.length)
        buf_fmt(out, ",\"max_model_len\":%u}", k.length);
    else
        buf_str(out, ",\"max_model_len\":null}");
}

static struct known known_by_name(struct edge *first, const char *id)
{
    struct edge *g = models_peek(first, id);
    if (!g)
        return (struct known){.since = first->started_unix};
    const struct known k = known_of(g);
    models_release(g);
    return k;
}

struct listing {
    struct buf *out;
    struct edge *first;
};

static void one_more(void *arg, const char *id)
{
    const struct listing *l = arg;
    buf_ch(l->out, ',');
    model(l->out, id, NULL, known_by_name(l->first, id));
}

/* ---------------------------------------------------------------- Anthropic's format */

/* Clients of Anthropic's API send its version. */
static bool of_anthropic(const struct call *c)
{
    return c->x && exchange_header(c->x, "anthropic-version");
}

static void their_model(struct buf *out, const char *id, int64_t since)
{
    buf_str(out, "{\"type\":\"model\",\"id\":");
    quoted(out, id);
    buf_str(out, ",\"display_name\":");
    quoted(out, id);
    buf_str(out, ",\"created_at\":");
    buf_json_time(out, since);
    buf_ch(out, '}');
}

struct their_listing {
    struct buf *out;
    int64_t since;
    struct buf last; /* the id of the last model, quoted */
};

static void one_more_of_theirs(void *arg, const char *id)
{
    struct their_listing *l = arg;
    buf_str(l->out, l->last.len ? "," : "");
    their_model(l->out, id, l->since);
    buf_reset(&l->last);
    quoted(&l->last, id);
}

static void each_adapter(const struct served_adapters *s, void (*fn)(void *arg, const char *name),
                         void *arg)
{
    for (uint32_t i = 0; s && i < s->n; i++)
        if (!s->v[i].leaving)
            fn(arg, s->v[i].name);
}

static void their_list(struct call *c, const struct served_adapters *adapters)
{
    struct their_listing l = {&c->out, c->edge->started_unix, BUF_INIT};
    buf_str(&c->out, "{\"data\":[");
    one_more_of_theirs(&l, c->edge->model_id);
    each_adapter(adapters, one_more_of_theirs, &l);
    models_each(c->edge->models, one_more_of_theirs, &l);
    buf_str(&c->out, "],\"has_more\":false,\"first_id\":");
    quoted(&c->out, c->edge->model_id);
    buf_str(&c->out, ",\"last_id\":");
    buf_add(&c->out, l.last.p, l.last.len);
    buf_ch(&c->out, '}');
    c->out.oom |= l.last.oom;
    buf_free(&l.last);
}

/* ---------------------------------------------------------------- the route */

static void one_adapter(void *arg, const char *name)
{
    const struct listing *l = arg;
    buf_ch(l->out, ',');
    model(l->out, name, l->first->model_id, known_of(l->first));
}

static void reply(struct call *c)
{
    struct adapter_shelf *shelf = edge_closed(c->edge) ? NULL : edge_adapters(c->edge);
    struct served_adapters *adapters = shelf ? adapter_shelf_hold(shelf) : NULL;
    const char *id = c->edge->model_id, *models = strstr(c->path, "/models");
    const char *one = models[strlen("/models")] ? models + strlen("/models/") : NULL;
    const struct known own = known_of(c->edge);
    struct listing l = {&c->out, c->edge};
    const bool theirs = of_anthropic(c), all = !one;
    struct err e;
    if (google_asks(c)) {
        served_adapters_release(adapters);
        c->errors = ERRORS_GOOGLE;
        google_models(c);
        return;
    }
    if (theirs)
        c->errors = ERRORS_ANTHROPIC;
    if (theirs && all) {
        their_list(c, adapters);
    } else if (theirs && (!strcmp(one, id) || edge_has_adapter(c->edge, one) ||
                          models_known(c->edge->models, one))) {
        their_model(&c->out, one, own.since);
    } else if (all) {
        buf_str(&c->out, "{\"object\":\"list\",\"data\":[");
        model(&c->out, id, NULL, own);
        each_adapter(adapters, one_adapter, &l);
        models_each(c->edge->models, one_more, &l);
        buf_str(&c->out, "]}");
    } else if (edge_has_adapter(c->edge, one)) {
        model(&c->out, one, id, own);
    } else if (!strcmp(one, id) || models_known(c->edge->models, one)) {
        model(&c->out, one, NULL, known_by_name(c->edge, one));
    } else {
        err_set(&e, ERR_NOT_FOUND, "The model `%.200s` does not exist", one);
        served_adapters_release(adapters);
        call_reply_error(c, &e);
        return;
    }
    served_adapters_release(adapters);
    call_reply(c);
}

const struct route route_models = {
    .method = "GET",
    .paths = {"/v1/models", "/v1/models/*", "/models", "/models/*"},
    .errors = ERRORS_OPENAI,
    .summary =
        "The served model, its adapters (`parent`) and models that are loaded on demand, as a list "
        "or "
        "by id. `max_model_len`: tokens of prompt and answer, null where the model is not loaded; "
        "`input_modalities` only where it takes images; `meta` as llama-server's, of a loaded "
        "model. "
        "In Anthropic's shape for requests with the header `anthropic-version`, in Google's for "
        "those with `x-goog-api-key` or `x-goog-api-client`.",
    .access = ACCESS_DESCRIBES,
    .reply = reply,
};
