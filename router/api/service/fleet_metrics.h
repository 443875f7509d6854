/* fleet_metrics.h - metrics with dynamic labels, which no row of router/metrics.h can have: per
 * replica, and vLLM's series with adapter names. */
#ifndef ROUTER_API_SERVICE_FLEET_METRICS_H
#define ROUTER_API_SERVICE_FLEET_METRICS_H
#include "common/buf.h"
#include "router/fleet/fleet.h"

/* Appends the series of replicas to `out`, if there may be several. */
void print_replicas(struct fleet *f, struct buf *out);
/* Appends vllm:lora_requests_info, whose value is the time, if adapters are served. */
void print_adapters(struct fleet *f, struct buf *out);
#endif
