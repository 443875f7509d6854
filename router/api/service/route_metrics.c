#include "common/log.h"
#include "router/call/call.h"
#include "router/metrics.h"

/* What the shards' KV cache is made of: vLLM's info series, whose value says nothing. */
static void print_cache_config(const struct edge *g, uint32_t blocks, struct buf *out)
{
    static const char name[] = "vllm:cache_config_info";
    buf_fmt(out, "# HELP %s Size of the KV cache.\n# TYPE %s gauge\n%s{block_size=\"%u\",", name,
            name, name, edge_limits(g)->block_size);
    buf_fmt(out, "num_gpu_blocks=\"%u\",model_name=\"", blocks);
    metrics_escape(out, g->model_id);
    buf_str(out, "\",engine=\"0\"} 1\n");
}

/* One gauge or counter of every replica. */
struct replica_row {
    const char *name, *type, *help;
    double (*of)(const struct replica_view *v);
};
static double is_up(const struct replica_view *v) { return v->ready; }
static double waiting(const struct replica_view *v) { return v->stats.queued; }
static double running(const struct replica_view *v) { return v->stats.running; }
static double kv_usage(const struct replica_view *v)
{
    return v->stats.blocks_total ? (double)v->stats.blocks_used / v->stats.blocks_total : 0;
}
static double sent(const struct replica_view *v) { return (double)v->sent; }
static double shared(const struct replica_view *v) { return (double)v->shared; }
static const struct replica_row replica_rows[] = {
    {"replica_up", "gauge", "1: the replica takes requests.", is_up},
    {"replica_queue_size", "gauge", "Requests waiting at the replica.", waiting},
    {"replica_batch_current_size", "gauge", "Requests running at the replica.", running},
    {"replica_kv_usage", "gauge", "KV blocks of the replica in use, from 0 to 1.", kv_usage},
    {"replica_requests_total", "counter", "Requests that were sent to the replica.", sent},
    {"replica_prefix_tokens_total", "counter",
     "Prompt tokens that the replica was expected to have cached.", shared},
};

struct replica_print {
    const struct replica_row *row;
    struct buf *out;
    bool any;
};

static void print_replica(void *arg, const struct replica_view *v)
{
    struct replica_print *p = arg;
    if (!p->any)
        buf_fmt(p->out, "# HELP %s %s\n# TYPE %s %s\n", p->row->name, p->row->help, p->row->name,
                p->row->type);
    p->any = true;
    buf_fmt(p->out, "%s{replica=\"", p->row->name);
    metrics_escape(p->out, v->name);
    buf_fmt(p->out, "\"} %.17g\n", p->row->of(v));
}

static void print_replicas(struct fleet *f, struct buf *out)
{
    for (size_t i = 0; f && i < sizeof(replica_rows) / sizeof(replica_rows[0]); i++)
        fleet_each(f, print_replica, &(struct replica_print){&replica_rows[i], out, false});
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
    print_replicas(f, &c->out);
    call_reply(c);
}

const struct route route_metrics = {
    .method = "GET",
    .paths = {"/metrics"},
    .summary = "Prometheus metrics.",
    .probe = true,
    .open = true,
    .reply = reply,
};
