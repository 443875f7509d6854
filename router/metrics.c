#include "router/metrics.h"

enum { SERIES_MOST = 8 }; /* values of a label, and NULL */

const struct metric_row router_metrics[N_ROUTER_METRICS] = {
#define X(id, kind, name_, label_, help_)                                                          \
    [id] = {.name = name_, .label = label_, .help = help_, METRIC_OF_##kind},
    ROUTER_METRICS(X)
#undef X
};

struct metrics *router_metrics_new(void)
{
    struct metrics *m = metrics_new(router_metrics, N_ROUTER_METRICS);
    static const struct {
        enum router_metric id;
        const char *values[SERIES_MOST];
    } series[] = {
#define X(id, ...) {id, {__VA_ARGS__}},
        ROUTER_METRIC_SERIES(X)
#undef X
    };
    for (size_t i = 0; m && i < sizeof(series) / sizeof(series[0]); i++)
        for (const char *const *value = series[i].values; *value; value++)
            metrics_expect(m, series[i].id, *value);
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
