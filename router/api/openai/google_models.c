/* The models as Google's clients list them. */
#include "router/api/openai/google_models.h"
#include <string.h>

struct listing {
    struct call *c;
    struct buf name; /* "models/NAME" */
};

/* `g`: the model's edge; NULL: it is not loaded, and its limits are unknown. */
static void put(struct listing *l, const char *name, const struct edge *g)
{
    struct buf *out = &l->c->out;
    buf_reset(&l->name);
    buf_fmt(&l->name, "models/%s", name);
    buf_str(out, "{\"name\":");
    buf_json_str(out, l->name.p ? l->name.p : "", l->name.len);
    buf_str(out, ",\"version\":\"1\",\"displayName\":");
    buf_json_str(out, name, strlen(name));
    if (g)
        buf_fmt(out, ",\"inputTokenLimit\":%u,\"outputTokenLimit\":%u",
                edge_limits(g)->max_input_tokens, edge_limits(g)->max_total_tokens);
    buf_str(out, ",\"supportedGenerationMethods\":[\"generateContent\",\"countTokens\"]}");
    out->oom |= l->name.oom;
}

static void put_named(struct listing *l, const char *name)
{
    struct edge *first = l->c->edge;
    const bool own = models_first(first, name);
    struct edge *g = own ? NULL : models_peek(first, name);
    put(l, name, own ? first : g);
    if (g)
        models_release(g);
}

static void put_next(void *arg, const char *name)
{
    struct listing *l = arg;
    buf_ch(&l->c->out, ',');
    put_named(l, name);
}

static void put_all(struct listing *l)
{
    struct edge *first = l->c->edge;
    struct adapter_shelf *shelf = edge_closed(first) ? NULL : edge_adapters(first);
    struct served_adapters *adapters = shelf ? adapter_shelf_hold(shelf) : NULL;
    buf_str(&l->c->out, "{\"models\":[");
    put(l, first->model_id, first);
    for (uint32_t i = 0; adapters && i < adapters->n; i++)
        if (!adapters->v[i].leaving)
            put_next(l, adapters->v[i].name);
    served_adapters_release(adapters);
    models_each(first->models, put_next, l);
    buf_str(&l->c->out, "]}");
}

bool google_asks(const struct call *c)
{
    return c->x &&
           (exchange_header(c->x, "x-goog-api-client") || exchange_header(c->x, "x-goog-api-key"));
}

void google_models(struct call *c)
{
    struct listing l = {c, BUF_INIT};
    const char *at = strstr(c->path, "/models/"), *one = at ? at + strlen("/models/") : NULL;
    struct err e;
    const bool known = one && (models_first(c->edge, one) || models_known(c->edge->models, one));
    if (!one)
        put_all(&l);
    else if (known)
        put_named(&l, one);
    buf_free(&l.name);
    if (one && !known) {
        err_set(&e, ERR_NOT_FOUND, "The model `%.200s` does not exist", one);
        call_reply_error(c, &e);
        return;
    }
    call_reply(c);
}
