/* The models as Google's clients list them. */
#include "router/api/openai/google_models.h"
#include "router/models/listing.h"
#include <string.h>

/* An object of a model or adapter; the limits of one that is not loaded are unknown. */
static void put(void *arg, const struct listed *m)
{
    struct buf *out = arg, name = BUF_INIT; /* "models/NAME" */
    buf_fmt(&name, "models/%s", m->name);
    if (out->len && out->p[out->len - 1] == '}')
        buf_ch(out, ',');
    buf_str(out, "{\"name\":");
    buf_json_str(out, name.p ? name.p : "", name.len);
    buf_str(out, ",\"version\":\"1\",\"displayName\":");
    buf_json_str(out, m->name, strlen(m->name));
    if (m->edge)
        buf_fmt(out, ",\"inputTokenLimit\":%u,\"outputTokenLimit\":%u",
                edge_limits(m->edge)->max_input_tokens, edge_limits(m->edge)->max_total_tokens);
    buf_fmt(out, ",\"supportedGenerationMethods\":[%s]}",
            m->edge && edge_limits(m->edge)->task == TASK_EMBED
                ? "\"embedContent\""
                : "\"generateContent\",\"countTokens\"");
    out->oom |= name.oom;
    buf_free(&name);
}

bool google_asks(const struct call *c)
{
    return c->x &&
           (exchange_header(c->x, "x-goog-api-client") || exchange_header(c->x, "x-goog-api-key"));
}

void google_models(struct call *c)
{
    const char *at = strstr(c->path, "/models/"), *one = at ? at + strlen("/models/") : NULL;
    struct err e;
    if (one && !listing_one(c->edge, one, put, &c->out)) {
        err_set(&e, ERR_NO_MODEL, "The model `%.200s` does not exist", one);
        call_reply_error(c, &e);
        return;
    }
    if (!one) {
        buf_str(&c->out, "{\"models\":[");
        listing_each(c->edge, put, &c->out);
        buf_str(&c->out, "]}");
    }
    call_reply(c);
}
