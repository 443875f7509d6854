#include "router/api/lmtp/lmtp.h"
#include "router/api/service/audit.h"
#include "router/call/call.h"
#include "router/models/models.h"
#include <string.h>

enum { WAIT_MS = 2000 };

/* Without an API key the port is open to all, but this data is not. */
static int may_ask(const struct call *c, struct err *e)
{
    return edge_home(c->edge)->has_keys || c->local
               ? 0
               : err_set(e, ERR_NOT_FOUND,
                         "/debug/audit is served to this machine alone; with --api-key, to those "
                         "who have one");
}

/* Audit of a model's scheduler; null: it does not answer, which is reported. */
static void scheduler_of(struct edge *g, struct buf *out)
{
    struct fleet *f = atomic_load(&g->fleet);
    struct err none = ERR_INIT;
    if (!f || fleet_audit(f, WAIT_MS, out, &none) != 0)
        buf_str(out, "null");
}

struct others {
    struct edge *first;
    struct buf *out;
    bool any;
};

/* Another model, if it is loaded. */
static void other(void *arg, const char *name)
{
    struct others *o = arg;
    struct edge *g = models_peek(o->first, name);
    if (!g || g == o->first)
        return;
    buf_str(o->out, o->any ? "," : "");
    buf_json_str(o->out, name, strlen(name));
    buf_str(o->out, ":{\"scheduler\":");
    scheduler_of(g, o->out);
    buf_fmt(o->out, ",\"permits_held\":%u}", admission_held(&g->admission));
    models_release(g);
    o->any = true;
}

static int work(struct call *c, struct err *e)
{
    struct edge *g = edge_home(c->edge);
    if (may_ask(c, e) != 0)
        return -1;
    buf_str(&c->out, "{\"scheduler\":");
    scheduler_of(g, &c->out);
    buf_str(&c->out, ",\"models\":{");
    models_each(g->models, other, &(struct others){g, &c->out, false});
    buf_fmt(&c->out,
            "},\"requests\":{\"live\":%u,\"permits_held\":%u,\"permits\":%u},"
            "\"connections\":{\"http\":%u,\"lingering\":%u,\"lmtp\":%u},\"descriptors\":",
            atomic_load(&g->live) - 1, admission_held(&g->admission),
            g->config->max_concurrent_requests, c->counts.connections, c->counts.lingering,
            lmtp_peers(g->lmtp));
    audit_descriptors(&c->out);
    buf_str(&c->out, ",\"memory\":");
    audit_memory(&c->out);
    buf_ch(&c->out, '}');
    return 0;
}

const struct route route_debug_audit = {
    .method = "GET",
    .paths = {"/debug/audit"},
    .summary =
        "Resources in use: sequences and KV blocks of the first model's scheduler, and in "
        "`models` those of the other loaded models; requests, connections, descriptors, memory. "
        "`balanced` is true if the blocks in use are exactly those of running sequences. Without "
        "keys it is served to 127.0.0.1 and ::1 alone, and not through a proxy.",
    .work = work,
};
