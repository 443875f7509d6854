/* span.h - the span of a served call, with the attributes of OpenTelemetry's RPC conventions.
 */
#ifndef COMMON_RPC_SPAN_H
#define COMMON_RPC_SPAN_H
#include "common/rpc/trace.h"
#include <stdint.h>

struct rpc_span {
    const char *method;                 /* "/package.Service/Method"; must outlive the tracer */
    const struct trace_context *parent; /* the caller's */
    int64_t arrived_ns, begun_ns;       /* clock_ns() of arrival, and of the handler's call */
    int64_t status;                     /* gRPC status code */
    const char *error;                  /* NULL: none; copied */
};
/* Adds a server span that ends now, and the time that the call was queued. Any thread. */
void rpc_span_add(struct tracer *t, const struct rpc_span *s);
#endif
