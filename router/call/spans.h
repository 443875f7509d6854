/* spans.h - OpenTelemetry spans of calls. Loop thread.
 *
 *   POST /v1/chat/completions        server span, with the attributes of the HTTP conventions
 *     ...                            request/spans.h, once per generation
 *
 * Probes are not traced, nor requests refused before any route. A client's `traceparent` is
 * continued with its `tracestate`, and its sampling decision is kept. Without one, everything is
 * recorded. */
#ifndef ROUTER_CALL_SPANS_H
#define ROUTER_CALL_SPANS_H
#include "router/call/call.h"

void spans_begin(struct call *c);     /* at arrival; adds the response headers */
void spans_end(const struct call *c); /* when no other thread uses the call any more */
#endif
