#include "router/call.h"

static void reply(struct call *c)
{
    c->type = "text/plain; version=0.0.4; charset=utf-8";
    edge_publish_startup(c->edge);
    metrics_print(c->edge->metrics, &c->out);
    call_reply(c);
}

const struct route route_metrics = {
    .method = "GET",
    .paths = {"/metrics"},
    .summary = "Prometheus metrics.",
    .probe = true,
    .open = true,
    .reply = reply,
};
