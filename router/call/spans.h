/* spans.h - what OpenTelemetry is told of a call. Loop thread.
 *
 *   POST /v1/chat/completions        server span, with the attributes of the conventions for HTTP
 *     ...                            generate/spans.h, once for each generation
 *
 * Probes are not traced, nor what is refused before any route. A `traceparent` of the client is
 * continued, with the `tracestate` beside it, and its decision whether to record is kept; without
 * one, everything is recorded. */
#ifndef ROUTER_CALL_SPANS_H
#define ROUTER_CALL_SPANS_H
#include "router/call/call.h"

void spans_begin(struct call *c);     /* when it arrives; adds the response's headers */
void spans_end(const struct call *c); /* when no thread works for it any more */
#endif
