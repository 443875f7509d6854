#include "router/api/openai/google_models.h"
#include "router/call/call.h"
#include "router/models/listing.h"
#include <inttypes.h>
#include <string.h>

static void quoted(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

struct shape {
    struct buf *out;
    int64_t since; /* when the server began to serve, in seconds since 1970 */
    uint32_t n;
    struct buf last; /* Anthropic's: the id of the last model, quoted */
};

static void facts(struct buf *out, const struct edge *g)
{
    const struct infer_limits *l = edge_limits(g);
    if (l->takes_images && g->vision)
        buf_fmt(out, ",\"input_modalities\":[\"text\",\"image\"%s]",
                vision_takes_videos(g->vision) ? ",\"video\"" : "");
    if (l->weight_bytes) /* llama-server's */
        buf_fmt(out,
                ",\"meta\":{\"n_vocab\":%u,\"n_embd\":%u,\"n_params\":%" PRIu64 ",\"size\":%" PRIu64
                "}",
                l->vocab_size, l->hidden_size, l->parameters, l->weight_bytes);
}

static void model(void *arg, const struct listed *m)
{
    struct shape *s = arg;
    struct buf *out = s->out;
    const uint32_t length = m->edge ? edge_limits(m->edge)->max_total_tokens : 0;
    buf_str(out, s->n++ ? ",{\"id\":" : "{\"id\":");
    quoted(out, m->name);
    buf_fmt(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":",
            (long long)(m->edge ? m->edge->started_unix : s->since));
    quoted(out, m->name);
    buf_str(out, ",\"root\":");
    quoted(out, m->base ? m->base : m->name);
    buf_str(out, ",\"parent\":");
    if (m->base)
        quoted(out, m->base);
    else
        buf_str(out, "null");
    if (m->edge)
        facts(out, m->edge);
    if (length)
        buf_fmt(out, ",\"max_model_len\":%u}", length);
    else
        buf_str(out, ",\"max_model_len\":null}");
}

/* ---------------------------------------------------------------- Anthropic's format */

/* Clients of Anthropic's API send its version. */
static bool of_anthropic(const struct call *c)
{
    return c->x && exchange_header(c->x, "anthropic-version");
}

static void their_model(void *arg, const struct listed *m)
{
    struct shape *s = arg;
    struct buf *out = s->out;
    buf_str(out, s->n++ ? ",{\"type\":\"model\",\"id\":" : "{\"type\":\"model\",\"id\":");
    quoted(out, m->name);
    buf_str(out, ",\"display_name\":");
    quoted(out, m->name);
    buf_str(out, ",\"created_at\":");
    buf_json_time(out, s->since);
    buf_ch(out, '}');
    buf_reset(&s->last);
    quoted(&s->last, m->name);
}

static void end_their_list(struct call *c, const struct shape *s)
{
    buf_str(&c->out, "],\"has_more\":false,\"first_id\":");
    quoted(&c->out, c->edge->model_id);
    buf_str(&c->out, ",\"last_id\":");
    buf_add(&c->out, s->last.p, s->last.len);
    buf_ch(&c->out, '}');
    c->out.oom |= s->last.oom;
}

/* ---------------------------------------------------------------- the route */

static void reply(struct call *c)
{
    const char *models = strstr(c->path, "/models");
    const char *one = models[strlen("/models")] ? models + strlen("/models/") : NULL;
    const bool theirs = of_anthropic(c);
    struct shape s = {.out = &c->out, .since = c->edge->started_unix};
    void (*const put)(void *, const struct listed *) = theirs ? their_model : model;
    struct err e;
    if (google_asks(c)) {
        c->errors = ERRORS_GOOGLE;
        google_models(c);
        return;
    }
    if (theirs)
        c->errors = ERRORS_ANTHROPIC;
    const bool found = !one || listing_one(c->edge, one, put, &s);
    if (!one) {
        buf_str(&c->out, theirs ? "{\"data\":[" : "{\"object\":\"list\",\"data\":[");
        listing_each(c->edge, put, &s);
        if (theirs)
            end_their_list(c, &s);
        else
            buf_str(&c->out, "]}");
    }
    buf_free(&s.last);
    if (found) {
        call_reply(c);
        return;
    }
    err_set(&e, ERR_NO_MODEL, "The model `%.200s` does not exist", one);
    call_reply_error(c, &e);
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
