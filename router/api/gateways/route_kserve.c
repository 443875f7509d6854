/* KServe's Open Inference Protocol, version 2: the server and the model. */
#include "common/text.h"
#include "router/call/call.h"
#include "router/http/route.h"
#include <string.h>

static void ready(struct call *c, const char *what)
{
    struct fleet *f = atomic_load(&c->edge->fleet);
    bool good = !edge_closed(c->edge) && fleet_healthy(f);
    c->status = good ? 200 : 503;
    buf_fmt(&c->out, "{\"%s\":%s}", what, good ? "true" : "false");
}

static void metadata(struct call *c, const char *name, const char *more)
{
    buf_str(&c->out, "{\"name\":");
    buf_json_str(&c->out, name, strlen(name));
    buf_str(&c->out, more);
}

static void reply(struct call *c)
{
    if (!strcmp(c->path, "/v2"))
        metadata(c, "router",
                 ",\"version\":\"" VERSION
                 "\",\"extensions\":[\"health\",\"models\",\"metrics\"]}");
    else if (!strcmp(c->path, "/v2/health/live"))
        buf_str(&c->out, "{\"live\":true}");
    else if (!strcmp(c->path, "/v2/health/ready"))
        ready(c, "live"); /* TGI's field */
    else if (ends_with(c->path, "/ready"))
        ready(c, "ready");
    else
        metadata(c, c->edge->model_id,
                 ",\"versions\":[\"1\"],\"platform\":\"text\",\"inputs\":[{\"name\":\"text\","
                 "\"datatype\":\"BYTES\",\"shape\":[1,-1]}],\"outputs\":[{\"name\":\"text\","
                 "\"datatype\":\"BYTES\",\"shape\":[1,-1]}]}");
    call_reply(c);
}

const struct route route_kserve = {
    .method = "GET",
    .paths = {"/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/*"},
    .summary = "KServe: the server, its health, `/v2/models/NAME`, and `/v2/models/NAME/ready`.",
    .probe = true,
    .access = ACCESS_DESCRIBES,
    .reply = reply,
};
