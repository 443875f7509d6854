#include "common/json/json.h"
#include "router/api/ollama/ollama.h"
#include "router/http/route.h"
#include <inttypes.h>
#include <string.h>

struct listing {
    struct call *c;
    bool loaded; /* /api/ps */
};

static void one(const struct listing *l, const struct edge *g, const char *name)
{
    struct buf *out = &l->c->out;
    buf_str(out, out->p[out->len - 1] == '[' ? "" : ",");
    ollama_model(out, l->c->edge, g, name);
    if (l->loaded) {
        const struct infer_limits *m = edge_limits(g);
        buf_fmt(out,
                ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":%" PRIu64
                ",\"context_length\":%u",
                strcmp(m->device, "cpu") == 0 ? 0 : m->weight_bytes, m->max_total_tokens);
    }
    buf_ch(out, '}');
}

/* A model that is loaded on demand. */
static void one_more(void *arg, const char *name)
{
    const struct listing *l = arg;
    struct edge *g = models_peek(l->c->edge, name);
    if (g || !l->loaded)
        one(l, g, name);
    if (g)
        models_release(g);
}

static void reply(struct call *c)
{
    struct listing l = {c, !strcmp(c->path, "/api/ps")};
    struct adapter_shelf *shelf = edge_closed(c->edge) ? NULL : edge_adapters(c->edge);
    struct served_adapters *adapters = shelf ? adapter_shelf_hold(shelf) : NULL;
    buf_str(&c->out, "{\"models\":[");
    one(&l, c->edge, c->edge->model_id);
    for (uint32_t i = 0; adapters && i < adapters->n; i++)
        if (!adapters->v[i].leaving)
            one(&l, c->edge, adapters->v[i].name);
    served_adapters_release(adapters);
    models_each(c->edge->models, one_more, &l);
    buf_str(&c->out, "]}");
    call_reply(c);
}

const struct route route_ollama_tags = {
    .method = "GET",
    .paths = {"/api/tags", "/api/ps"},
    .errors = ERRORS_OLLAMA,
    .summary =
        "Ollama's lists: the models and adapters that may be asked for; with `/api/ps` those "
        "that are in memory. `size` is that of the weights in memory; a model that is not loaded "
        "has "
        "none.",
    .access = ACCESS_DESCRIBES,
    .reply = reply,
};
