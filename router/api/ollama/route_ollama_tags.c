#include "common/json/json.h"
#include "router/api/ollama/ollama.h"
#include "router/http/route.h"
#include "router/models/listing.h"
#include <inttypes.h>
#include <string.h>

struct listing {
    struct call *c;
    bool loaded; /* /api/ps */
};

static void one(void *arg, const struct listed *m)
{
    const struct listing *l = arg;
    struct buf *out = &l->c->out;
    if (l->loaded && !m->edge)
        return;
    buf_str(out, out->p[out->len - 1] == '[' ? "" : ",");
    ollama_model(out, l->c->edge, m->edge, m->name);
    if (l->loaded) {
        const struct infer_limits *limits = edge_limits(m->edge);
        buf_fmt(out,
                ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":%" PRIu64
                ",\"context_length\":%u",
                strcmp(limits->device, "cpu") == 0 ? 0 : limits->weight_bytes,
                limits->max_total_tokens);
    }
    buf_ch(out, '}');
}

static void reply(struct call *c)
{
    struct listing l = {c, !strcmp(c->path, "/api/ps")};
    buf_str(&c->out, "{\"models\":[");
    listing_each(c->edge, one, &l);
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
