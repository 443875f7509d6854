#include "router/metrics.h"

const struct metric_row router_metrics[N_ROUTER_METRICS] = {
#define X(id, type, name, label, help, first, factor, n)                                           \
    [id] = {name, METRIC_##type, label, help, first, factor, n},
    ROUTER_METRICS(X)
#undef X
};
