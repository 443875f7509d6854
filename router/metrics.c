#include "router/metrics.h"

const struct metric_row router_metrics[N_ROUTER_METRICS] = {
#define X(id, type, name, label, help, first, factor, n)                                           \
    [id] = {name, METRIC_##type, label, help, first, factor, n},
    ROUTER_METRICS(X)
#undef X
};

struct metrics *router_metrics_new(void)
{
    struct metrics *m = metrics_new(router_metrics, N_ROUTER_METRICS);
#define X(id, value) metrics_expect(m, id, value);
    if (m) {
        ROUTER_METRIC_SERIES(X)
    }
#undef X
    return m;
}

/* vLLM's series carry the model's name and the engine's index in the process. */
void router_metrics_print_aliases(const struct metrics *m, const char *model, struct buf *out)
{
    static const struct metric_alias aliases[] = {
#define X(name, id, part) {name, id, METRIC_##part},
        ROUTER_METRIC_ALIASES(X)
#undef X
    };
    struct buf labels = BUF_INIT;
    buf_str(&labels, "model_name=\"");
    metrics_escape(&labels, model);
    buf_str(&labels, "\",engine=\"0\"");
    if (labels.p)
        metrics_print_aliases(m, aliases, sizeof(aliases) / sizeof(aliases[0]), labels.p, out);
    buf_free(&labels);
}
