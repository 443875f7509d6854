/* traffic.h - HTTP requests by route, method and class of status.
 *
 * The series have the names and labels of prometheus-fastapi-instrumentator, which dashboards for
 * vLLM and TEI read: http_requests_total{handler,method,status} and
 * http_request_duration_seconds{handler,method}. Probes are not counted. */
#ifndef ROUTER_HTTP_TRAFFIC_H
#define ROUTER_HTTP_TRAFFIC_H
#include "common/buf.h"
#include "router/http/route.h"

struct traffic;
struct traffic *traffic_new(void); /* NULL: out of memory */
void traffic_free(struct traffic *t);
/* Counts a request that is over after `ns` nanoseconds. `route`: NULL if no route was found.
 * Lock-free; any thread. */
void traffic_note(struct traffic *t, const struct route *route, int status, int64_t ns);
/* Appends the series of routes that were called, in Prometheus' text format. */
void traffic_print(const struct traffic *t, struct buf *out);
#endif
