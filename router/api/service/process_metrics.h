/* process_metrics.h - the series that Prometheus' client libraries have of their own process:
 * https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics */
#ifndef ROUTER_API_SERVICE_PROCESS_METRICS_H
#define ROUTER_API_SERVICE_PROCESS_METRICS_H
#include "common/buf.h"
#include <stdint.h>

/* Appends processor time, memory and descriptors of the router to `out`; what /proc does not tell
 * is left out. `started_unix`: when it began, in seconds since 1970. */
void print_process(int64_t started_unix, struct buf *out);
#endif
