/* fleet_rig.h - a fleet over fake shards, which a test kills and starts. */
#ifndef TESTS_UNIT_ROUTER_FLEET_FLEET_RIG_H
#define TESTS_UNIT_ROUTER_FLEET_FLEET_RIG_H
#include "router/fleet/fleet.h"
#include "router/fleet/impl.h"
#include "tests/temp_folder.h"
#include "tests/unit/router/infer_rig.h"

enum { REPLICAS = 3 };

struct fleet_rig {
    struct fake_shard *shard[REPLICAS];
    uint32_t n;
    struct fleet *fleet;
    struct metrics *metrics;
    atomic_bool lost;
};

static inline void on_fleet_lost(void *arg, const char *why)
{
    (void)why;
    atomic_store(&((struct fleet_rig *)arg)->lost, true);
}

static inline struct fake_shard *shard_new(const struct fake_shard *like, const char *path)
{
    struct fake_shard *f = calloc(1, sizeof(*f));
    *f = *like;
    snprintf(f->path, sizeof(f->path), "%s", path);
    f->world = 1;
    f->urls[0] = f->path;
    fake_start(f);
    return f;
}

static inline void shard_end(struct fake_shard *f)
{
    fake_stop(f);
    assert_int_equal(f->n_bad, 0);
    free(f);
}

static inline struct fleet_rig *fleet_rig_new(const struct fake_shard *like,
                                              const struct infer_config *c, uint32_t n,
                                              const char *discovery)
{
    static int serial;
    struct fleet_rig *g = calloc(1, sizeof(*g));
    const char *targets[REPLICAS];
    char target[REPLICAS][120];
    struct err e = ERR_INIT;
    serial++;
    for (g->n = 0; g->n < n; g->n++) {
        char path[100];
        snprintf(path, sizeof(path), "%s/f%d-%u", dir, serial, g->n);
        snprintf(target[g->n], sizeof(target[0]), "unix:%s", path);
        g->shard[g->n] = shard_new(like, path);
        targets[g->n] = target[g->n];
    }
    const bool listed = discovery && strncmp(discovery, "file:", 5) == 0;
    struct fleet_config f = {
        .infer = *c, .targets = targets, .n_targets = listed ? 0 : n, .discovery = discovery};
    f.infer.connect_timeout_ms = WAIT_MS;
    f.infer.check = true;
    f.infer.metrics = g->metrics = metrics_new(router_metrics, N_ROUTER_METRICS);
    if (listed) {
        FILE *list = fopen(discovery + 5, "we");
        for (uint32_t i = 0; i < n; i++)
            fprintf(list, "%s\n", targets[i]);
        fclose(list);
    }
    g->fleet = fleet_start(&f, &e);
    if (!g->fleet)
        print_error("%s\n", e.msg);
    assert_non_null(g->fleet);
    fleet_on_lost(g->fleet, on_fleet_lost, g);
    return g;
}

static inline bool fleet_is_idle(const void *arg)
{
    struct infer_stats s = fleet_stats(((const struct fleet_rig *)arg)->fleet);
    return s.queued == 0 && s.running == 0;
}

static inline void fleet_rig_free(struct fleet_rig *g)
{
    assert_true(wait_for(fleet_is_idle, g));
    assert_int_equal(fleet_stats(g->fleet).blocks_used, 0);
    fleet_stop(g->fleet);
    for (uint32_t i = 0; i < g->n; i++)
        if (g->shard[i])
            shard_end(g->shard[i]);
    metrics_free(g->metrics);
    free(g);
}

static inline void count_ready(void *arg, const struct replica_view *v)
{
    *(uint32_t *)arg += v->ready;
}

static inline uint32_t n_ready(const struct fleet_rig *g)
{
    uint32_t n = 0;
    fleet_each(g->fleet, count_ready, &n);
    return n;
}
static inline bool all_ready(const void *g)
{
    return n_ready(g) == ((const struct fleet_rig *)g)->n;
}
static inline bool one_less(const void *g)
{
    return n_ready(g) == ((const struct fleet_rig *)g)->n - 1;
}
static inline bool none_ready(const void *g) { return n_ready(g) == 0; }
static inline bool fleet_is_lost(const void *g)
{
    return atomic_load(&((const struct fleet_rig *)g)->lost);
}

static inline void kill_shard(struct fleet_rig *g, uint32_t i) { fake_stop(g->shard[i]); }

static inline void start_again(struct fleet_rig *g, uint32_t i, const struct fake_shard *like)
{
    struct fake_shard *old = g->shard[i];
    g->shard[i] = shard_new(like, old->path);
    shard_end(old);
}

static inline uint32_t prefills(struct fleet_rig *g, uint32_t i)
{
    uint32_t n = 0;
    pthread_mutex_lock(&g->shard[i]->lock);
    for (uint32_t k = 0; k < g->shard[i]->n_log; k++)
        n += g->shard[i]->log[k].rpc == FAKE_PREFILL;
    pthread_mutex_unlock(&g->shard[i]->lock);
    return n;
}

static inline double value(const struct fleet_rig *g, const char *name)
{
    struct buf b = BUF_INIT;
    char line[64];
    metrics_print(g->metrics, &b);
    snprintf(line, sizeof(line), "\n%s ", name);
    const char *at = strstr(b.p, line);
    double v = at ? atof(at + strlen(line)) : -1;
    buf_free(&b);
    return v;
}

static const struct infer_config patient = {.max_batch_prefill_tokens = 64, .return_ms = WAIT_MS};

static inline int fleet_rig_set_up(void **state)
{
    signal(SIGPIPE, SIG_IGN);
    return temp_begin(state);
}
static inline int fleet_rig_tear_down(void **state) { return temp_end(state); }
#endif
