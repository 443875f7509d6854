/* fleet_metrics.h - series that no row of router/metrics.h can have: by replica, and vLLM's series
 * whose labels are the adapters in use. */
#ifndef ROUTER_API_SERVICE_FLEET_METRICS_H
#define ROUTER_API_SERVICE_FLEET_METRICS_H
#include "common/buf.h"
#include "router/fleet/fleet.h"

/* Appended to `out`, where there may be several replicas. */
void print_replicas(struct fleet *f, struct buf *out);
/* vllm:lora_requests_info, whose value is the time, where adapters are served. */
void print_adapters(struct fleet *f, struct buf *out);
#endif
