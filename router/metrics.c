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

#define X(name, id, part) {name, id, METRIC_##part},
static const struct metric_alias of_vllm[] = {ROUTER_METRIC_ALIASES(X)};
static const struct metric_alias of_llama[] = {ROUTER_METRIC_LLAMA(X)};
#undef X

/* vLLM's series carry the model's name and the engine's index in the process. */
void router_metrics_print_aliases(const struct metrics *m, const char *model, struct buf *out)
{
    struct buf labels = BUF_INIT;
    buf_str(&labels, "model_name=\"");
    metrics_escape(&labels, model);
    buf_str(&labels, "\",engine=\"0\"");
    if (labels.p)
        metrics_print_aliases(m, of_vllm, sizeof(of_vllm) / sizeof(of_vllm[0]), labels.p, out);
    metrics_print_aliases(m, of_llama, sizeof(of_llama) / sizeof(of_llama[0]), "", out);
    buf_free(&labels);
}
