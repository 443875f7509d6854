#include "common/rpc/span.h"
#include "common/clock.h"
#include <stdio.h>
#include <string.h>

void rpc_span_add(struct tracer *t, const struct rpc_span *q)
{
    const char *name = q->method + 1, *slash = strchr(name, '/');
    char service[100];
    struct trace_span s = {.self = trace_child(q->parent),
                           .name = name,
                           .kind = TRACE_SERVER,
                           .start_ns = q->arrived_ns,
                           .end_ns = clock_ns(),
                           .error = q->error};
    memcpy(s.parent, q->parent->span_id, sizeof(s.parent));
    snprintf(service, sizeof(service), "%.*s", slash ? (int)(slash - name) : 0, name);
    s.attr[s.n_attrs++] = TRACE_S("rpc.system", "grpc");
    s.attr[s.n_attrs++] = TRACE_S("rpc.service", service);
    s.attr[s.n_attrs++] = TRACE_S("rpc.method", slash ? slash + 1 : name);
    s.attr[s.n_attrs++] = TRACE_I("rpc.grpc.status_code", q->status);
    s.attr[s.n_attrs++] = TRACE_D("rpc.server.wait", (double)(q->begun_ns - q->arrived_ns) * 1e-9);
    tracer_add(t, &s);
}
