#include "router/call.h"
#include <string.h>

static void quoted(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

/* `base`: the model that an adapter belongs to, NULL for a model; `length` 0: not known, as of
 * models that are not loaded. */
static void model(struct buf *out, const char *id, const char *base, uint32_t length)
{
    buf_str(out, "{\"id\":");
    quoted(out, id);
    buf_str(out, ",\"object\":\"model\",\"created\":0,\"owned_by\":");
    quoted(out, id);
    buf_str(out, ",\"root\":");
    quoted(out, base ? base : id);
    buf_str(out, ",\"parent\":");
    if (base)
        quoted(out, base);
    else
        buf_str(out, "null");
    if (length)
        buf_fmt(out, ",\"max_model_len\":%u}", length);
    else
        buf_str(out, ",\"max_model_len\":null}");
}

static uint32_t length_of(struct edge *first, const char *id)
{
    struct edge *g = models_peek(first, id);
    if (!g)
        return 0;
    uint32_t length = edge_limits(g)->max_total_tokens;
    models_release(g);
    return length;
}

struct listing {
    struct buf *out;
    struct edge *first;
};

static void one_more(void *arg, const char *id)
{
    const struct listing *l = arg;
    buf_ch(l->out, ',');
    model(l->out, id, NULL, length_of(l->first, id));
}

static void reply(struct call *c)
{
    const struct served_adapters *adapters = edge_closed(c->edge) ? NULL : c->edge->limits.adapters;
    const char *id = c->edge->model_id, *prefix = "/v1/models/";
    const char *one = c->path + strlen(prefix);
    const uint32_t length = edge_limits(c->edge)->max_total_tokens;
    struct listing l = {&c->out, c->edge};
    struct err e;
    if (strncmp(c->path, prefix, strlen(prefix)) != 0) {
        buf_str(&c->out, "{\"object\":\"list\",\"data\":[");
        model(&c->out, id, NULL, length);
        for (uint32_t i = 0; adapters && i < adapters->n; i++) {
            buf_ch(&c->out, ',');
            model(&c->out, adapters->v[i].name, id, length);
        }
        models_each(c->edge->models, one_more, &l);
        buf_str(&c->out, "]}");
    } else if (edge_adapter(c->edge, one)) {
        model(&c->out, one, id, length);
    } else if (!strcmp(one, id) || models_known(c->edge->models, one)) {
        model(&c->out, one, NULL, length_of(c->edge, one));
    } else {
        err_set(&e, ERR_NOT_FOUND, "The model `%.200s` does not exist", one);
        call_reply_error(c, &e);
        return;
    }
    call_reply(c);
}

const struct route route_models = {
    .method = "GET",
    .paths = {"/v1/models", "/v1/models/*"},
    .summary =
        "The served model, its adapters (`parent`) and models that are loaded on demand, as a list "
        "or "
        "by id. `max_model_len`: tokens of prompt and answer, null where the model is not loaded.",
    .open = true,
    .reply = reply,
};
