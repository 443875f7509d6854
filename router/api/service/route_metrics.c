#include "common/log.h"
#include "router/call/call.h"
#include "router/metrics.h"

static void reply(struct call *c)
{
    c->type = "text/plain; version=0.0.4; charset=utf-8";
    struct edge *home = edge_home(c->edge);
    uint64_t dropped = log_dropped();
    edge_publish_startup(c->edge);
    metrics_add(home->metrics, M_LOG_DROPPED, NULL, (double)(dropped - home->n_log_dropped));
    home->n_log_dropped = dropped;
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
