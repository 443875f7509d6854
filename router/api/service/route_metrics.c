#include "common/log/log.h"
#include "router/api/service/fleet_metrics.h"
#include "router/api/service/process_metrics.h"
#include "router/call/call.h"
#include "router/http/traffic.h"
#include "router/metrics.h"

/* vLLM's state of an engine that may be put to sleep; this one never is. */
static void print_awake(const struct edge *g, struct buf *out)
{
    static const char name[] = "vllm:engine_sleep_state";
    static const char *const states[] = {"awake", "weights_offloaded", "discard_all"};
    buf_fmt(out, "# HELP %s 1: the engine is in this state.\n# TYPE %s gauge\n", name, name);
    for (int i = 0; i < 3; i++) {
        buf_fmt(out, "%s{sleep_state=\"%s\",model_name=\"", name, states[i]);
        metrics_escape(out, g->model_id);
        buf_fmt(out, "\",engine=\"0\"} %d\n", i == 0);
    }
}

/* The KV cache configuration: vLLM's info series, whose value is constant. */
static void print_cache_config(const struct edge *g, uint32_t blocks, struct buf *out)
{
    static const char name[] = "vllm:cache_config_info";
    buf_fmt(out, "# HELP %s Size of the KV cache.\n# TYPE %s gauge\n%s{block_size=\"%u\",", name,
            name, name, edge_limits(g)->block_size);
    buf_fmt(out, "num_gpu_blocks=\"%u\",model_name=\"", blocks);
    metrics_escape(out, g->model_id);
    buf_str(out, "\",engine=\"0\"} 1\n");
}

static void reply(struct call *c)
{
    c->type = "text/plain; version=0.0.4; charset=utf-8";
    struct edge *home = edge_home(c->edge);
    uint64_t dropped = log_dropped();
    edge_publish_startup(c->edge);
    metrics_add(home->metrics, M_LOG_DROPPED, NULL, (double)(dropped - home->n_log_dropped));
    home->n_log_dropped = dropped;
    struct fleet *f = atomic_load(&home->fleet);
    const struct infer_stats st = f ? fleet_stats(f) : (struct infer_stats){0};
    metrics_set(home->metrics, M_KV_USAGE, NULL,
                st.blocks_total ? (double)st.blocks_used / st.blocks_total : 0);
    metrics_print(c->edge->metrics, &c->out);
    router_metrics_print_aliases(home->metrics, home->model_id, &c->out);
    if (st.blocks_total)
        print_cache_config(home, st.blocks_total, &c->out);
    traffic_print(home->traffic, &c->out);
    print_process(home->started_unix, &c->out);
    if (f) {
        print_awake(home, &c->out);
        print_adapters(f, &c->out);
        print_replicas(f, &c->out);
    }
    call_reply(c);
}

const struct route route_metrics = {
    .method = "GET",
    .paths = {"/metrics"},
    .summary = "Prometheus metrics.",
    .probe = true,
    .access = ACCESS_DESCRIBES,
    .reply = reply,
};
