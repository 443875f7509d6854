#include "router/api/service/fleet_metrics.h"
#include "common/metrics.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A gauge or counter per replica. */
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

void print_replicas(struct fleet *f, struct buf *out)
{
    for (size_t i = 0; i < sizeof(replica_rows) / sizeof(replica_rows[0]); i++)
        fleet_each(f, print_replica, &(struct replica_print){&replica_rows[i], out, false});
}

/* ---------------------------------------------------------------- adapters */

struct adapter_names { /* comma-separated lists without duplicates */
    struct buf all, running, waiting;
    uint32_t n;
};

static bool is_listed(const struct buf *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list->len ? list->p : NULL; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == 0))
            return true;
    }
    return false;
}

static void list_name(struct buf *list, const char *name)
{
    if (!is_listed(list, name))
        buf_fmt(list, "%s%s", list->len ? "," : "", name);
}

static void note_adapter(void *arg, const char *name, const struct adapter_use *u)
{
    struct adapter_names *a = arg;
    a->n += !is_listed(&a->all, name);
    list_name(&a->all, name);
    if (u->running)
        list_name(&a->running, name);
    if (u->known > u->running)
        list_name(&a->waiting, name);
}

void print_adapters(struct fleet *f, struct buf *out)
{
    static const char name[] = "vllm:lora_requests_info";
    struct adapter_names a = {0};
    fleet_each_adapter(f, note_adapter, &a);
    const uint32_t most = fleet_limits(f)->runtime_adapters;
    if (a.n || most) {
        buf_fmt(out, "# HELP %s Adapters of requests that run and wait.\n# TYPE %s gauge\n", name,
                name);
        buf_fmt(out, "%s{max_lora=\"%u\",running_lora_adapters=\"", name, a.n > most ? a.n : most);
        metrics_escape(out, a.running.len ? a.running.p : "");
        buf_str(out, "\",waiting_lora_adapters=\"");
        metrics_escape(out, a.waiting.len ? a.waiting.p : "");
        buf_fmt(out, "\"} %lld\n", (long long)time(NULL));
    }
    buf_free(&a.all);
    buf_free(&a.running);
    buf_free(&a.waiting);
}
