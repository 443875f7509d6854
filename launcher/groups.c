#include "launcher/groups.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/process/exit_code.h"
#include "launcher/plan/machine.h"
#include "launcher/process/sweep.h"
#include "launcher/restarts.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MESSAGE_MAX = 4096, GROUP_ARENA = 16 << 20 };
enum group_state { FREE, LOADING, READY, RESTARTING, STOPPING };

struct group {
    enum group_state state;
    uint32_t slot, n_ready, n_probes;
    int code;    /* with `why`: of the child that failed; 0: none */
    bool served; /* it was READY in this run */
    struct restarts restarts;
    bool replica;            /* of the first model; otherwise a model loaded on demand */
    struct share part;       /* of a replica */
    int64_t since, deadline; /* ms; deadline 0: none */
    struct arena arena;      /* reset at each start */
    struct config cfg;
    struct plan plan;
    char folder[MESSAGE_MAX], name[64], uds_path[128], why[512]; /* why: the failure */
};

static struct child *shard(const struct groups *g, const struct group *q, uint32_t rank)
{
    return &g->children[2 * ((size_t)q->slot * g->n_ranks + rank)];
}
static struct child *probe(const struct groups *g, const struct group *q, uint32_t rank)
{
    return shard(g, q, rank) + 1;
}

static void notify(const struct groups *g, const char *what, const struct group *q,
                   const char *more)
{
    char text[MESSAGE_MAX];
    int n = snprintf(text, sizeof(text), "%s %" PRIu32 " %s", what, q->slot, more);
    n = n < (int)sizeof(text) ? n : (int)sizeof(text) - 1;
    /* A router that has exited needs no answer, and one that does not read cannot use it. */
    if (send(g->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        log_msg(LOG_DEBUG, "the router does not read: %s", text);
}

/* ---------------------------------------------------------------- ending */

static void signal_all(const struct groups *g, const struct group *q, int sig)
{
    for (uint32_t r = 0; r < g->n_ranks; r++) {
        child_signal(shard(g, q, r), sig);
        child_signal(probe(g, q, r), sig);
    }
}

static bool all_gone(const struct groups *g, const struct group *q)
{
    for (uint32_t r = 0; r < g->n_ranks; r++)
        if (shard(g, q, r)->alive || probe(g, q, r)->alive)
            return false;
    return true;
}

static void over_when_gone(struct groups *g, struct group *q)
{
    if (!all_gone(g, q))
        return;
    sweep_shards(&q->plan);
    q->state = FREE;
    q->deadline = 0;
    if (q->replica)
        return;
    LOG(LOG_INFO, "Model unloaded", LOGS("model", q->folder), LOGI("slot", q->slot));
    notify(g, *q->why ? "failed" : "gone", q, q->why);
}

static void stop(struct groups *g, struct group *q)
{
    q->state = STOPPING;
    q->deadline = clock_ms() + 1000 * (int64_t)g->base->cfg->graceful_termination_timeout;
    signal_all(g, q, SIGTERM);
    over_when_gone(g, q);
}

/* The first failure is the cause. */
static void fail(struct groups *g, struct group *q, const char *who, const struct child *c)
{
    char cause[480] = "";
    if (q->state == STOPPING)
        return;
    if (c)
        child_cause(c, cause, sizeof(cause));
    q->code = c ? exit_code_of_child(c->status) : 0;
    snprintf(q->why, sizeof(q->why), "%s %s", who, cause);
    LOG(LOG_ERROR, q->replica ? "Replica failed" : "Model failed", LOGS("name", q->folder),
        LOGS("why", q->why));
    stop(g, q);
}

/* ---------------------------------------------------------------- starting */

static void make_plan(struct groups *g, struct group *q)
{
    arena_reset(&q->arena);
    arena_init(&q->arena, GROUP_ARENA);
    if (q->replica) {
        plan_replica(g->base, q->slot - g->n_models, &q->part, &q->cfg, &q->arena, &q->plan);
        return;
    }
    snprintf(q->uds_path, sizeof(q->uds_path), "%s-m%" PRIu32, g->base->uds_path, q->slot);
    snprintf(q->name, sizeof(q->name), "%s-m%" PRIu32, g->base->group, q->slot);
    plan_other(g->base, q->folder, q->uds_path, q->name, &q->cfg, &q->arena, &q->plan);
    q->cfg.master_port += 1 + q->slot;
}

static const char *label(const struct groups *g, struct group *q, const char *what, uint32_t rank)
{
    char text[64];
    int n = snprintf(text, sizeof(text), "%s-%c%" PRIu32 "-%" PRIu32, what, q->replica ? 'r' : 'm',
                     q->replica ? q->slot - g->n_models : q->slot, rank);
    const char *p = arena_strdup(&q->arena, text, (size_t)n);
    return p ? p : what;
}

static int start_probe(struct groups *g, struct group *q, uint32_t rank, struct err *e)
{
    struct command cmd;
    if (plan_probe(&q->plan, rank, &cmd, e))
        return -1;
    return child_start(probe(g, q, rank), label(g, q, "probe", rank), &cmd, e);
}

static void start_probe_again(struct groups *g, struct group *q, uint32_t rank)
{
    struct err e = ERR_INIT;
    child_free(probe(g, q, rank));
    if (start_probe(g, q, rank, &e))
        fail(g, q, e.msg, NULL);
}

static int start_rank(struct groups *g, struct group *q, uint32_t rank, struct err *e)
{
    struct command cmd;
    child_free(shard(g, q, rank)); /* of the previous run */
    child_free(probe(g, q, rank));
    if (machine_socket_free(plan_socket(&q->plan, rank), e) != 0 ||
        (q->served ? plan_shard_again : plan_shard)(&q->plan, rank, &cmd, e) != 0 ||
        child_start(shard(g, q, rank), label(g, q, "shard", rank), &cmd, e) != 0)
        return -1;
    return start_probe(g, q, rank, e);
}

static void start(struct groups *g, struct group *q)
{
    struct err e = ERR_INIT;
    q->n_ready = q->n_probes = 0;
    q->state = LOADING;
    q->since = clock_ms();
    q->deadline = g->base->cfg->startup_timeout
                      ? q->since + 1000 * (int64_t)g->base->cfg->startup_timeout
                      : 0;
    make_plan(g, q);
    for (uint32_t r = 0; r < g->n_ranks; r++)
        if (start_rank(g, q, r, &e) != 0) {
            fail(g, q, e.msg, NULL);
            return;
        }
}

static void load(struct groups *g, struct group *q, const char *folder)
{
    snprintf(q->folder, sizeof(q->folder), "%s", folder);
    *q->why = 0;
    q->served = false;
    q->restarts = (struct restarts){0};
    LOG(LOG_INFO, q->replica ? "Starting replica" : "Loading model", LOGS("name", folder),
        LOGI("slot", q->slot), LOGI("cores", CPU_COUNT(&q->part.cores)));
    start(g, q);
}

static void start_when_gone(struct groups *g, struct group *q)
{
    if (q->deadline || !all_gone(g, q)) /* the deadline is that of the pause */
        return;
    machine_socket_folder(q->plan.uds_path);
    start(g, q);
}

/* A rank is lost: the others have no state to save, and may hang in a collective. */
static void start_again(struct groups *g, struct group *q, const char *who, const struct child *c)
{
    char cause[480];
    child_cause(c, cause, sizeof(cause));
    LOG(LOG_ERROR, q->replica ? "Replica lost a shard" : "Model lost a shard",
        LOGS("name", q->folder), LOGS("who", who), LOGS("why", cause));
    const uint32_t pause_ms = restarts_count(&q->restarts, q->state == LOADING, c->status);
    LOG(LOG_WARN, "Restarting the shards", LOGS("name", q->folder), LOGI("restart", q->restarts.n),
        LOGI("most_in_an_hour", g->base->cfg->max_shard_restarts), LOGI("in_ms", pause_ms));
    q->state = RESTARTING;
    q->deadline = pause_ms ? clock_ms() + pause_ms : 0;
    signal_all(g, q, SIGKILL);
    start_when_gone(g, q);
}

/* A first load is tried once more if a signal from outside ended it: SIGKILL, which the kernel may
 * send because of another process' memory and the launcher sends to a frozen shard, or SIGTERM. A
 * load that failed by itself has logged the reason, and would fail the same way again. */
static bool may_start_again(struct groups *g, struct group *q, const struct child *c)
{
    const int sig = WIFSIGNALED(c->status) ? WTERMSIG(c->status) : 0;
    const bool again = (sig == SIGKILL || sig == SIGTERM) && !q->restarts.n;
    return (q->served || again) && !g->ending && restarts_left(&q->restarts, g->base, clock_ms());
}

/* ---------------------------------------------------------------- events */

static void serve(struct groups *g, const char *text)
{
    char word[16];
    unsigned slot = 0;
    int at = 0;
    if (sscanf(text, "%15s %u %n", word, &slot, &at) < 2 || slot >= g->n_models) {
        log_msg(LOG_ERROR, "invalid message from the router: %.100s", text);
        return;
    }
    struct group *q = &g->v[slot];
    if (!strcmp(word, "load") && q->state == FREE)
        load(g, q, text + at);
    else if (!strcmp(word, "unload") && q->state != FREE && q->state != STOPPING)
        stop(g, q);
    else
        log_msg(LOG_ERROR, "unexpected message from the router: %.100s", text);
}

void groups_read(struct groups *g)
{
    char text[MESSAGE_MAX];
    ssize_t n;
    while (g->fd >= 0 && (n = recv(g->fd, text, sizeof(text) - 1, MSG_DONTWAIT)) > 0) {
        text[n] = 0;
        serve(g, text);
    }
}

void groups_lost(struct groups *g, uint32_t child)
{
    struct group *q = &g->v[child / (2 * g->n_ranks)];
    const struct child *c = &g->children[child];
    bool is_probe = child % 2, ok = WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0;
    char who[64];
    snprintf(who, sizeof(who), "%s %" PRIu32, is_probe ? "health probe of rank" : "rank",
             child / 2 % g->n_ranks);
    if (q->state == FREE)
        return; /* several ended at once, and the first one has freed the slot */
    if (q->state == STOPPING) {
        over_when_gone(g, q);
    } else if (q->state == RESTARTING) {
        start_when_gone(g, q);
    } else if (is_probe && q->state == LOADING && child_probe_again(c, &q->n_probes)) {
        start_probe_again(g, q, child / 2 % g->n_ranks);
    } else if (!is_probe && may_start_again(g, q, c)) {
        start_again(g, q, who, c);
    } else if (!is_probe || !ok) {
        fail(g, q, who, c);
    } else if (q->state == LOADING && ++q->n_ready == g->n_ranks) {
        q->state = READY;
        q->served = true;
        q->deadline = 0;
        LOG(LOG_INFO, q->replica ? "Replica ready" : "Model ready", LOGS("name", q->folder),
            LOGD("seconds", (double)(clock_ms() - q->since) / 1e3));
        if (!q->replica)
            notify(g, "ready", q, plan_socket(&q->plan, 0));
    }
}

void groups_end(struct groups *g)
{
    g->ending = true;
    for (uint32_t i = 0; i < g->n; i++) {
        struct group *q = &g->v[i];
        /* replicas serve until all groups are stopped; killed shards of a model do not return */
        if (q->state == RESTARTING || (q->replica && q->state != FREE)) {
            q->state = STOPPING;
            q->deadline = 0;
        }
    }
}

int64_t groups_deadline(const struct groups *g)
{
    int64_t first = 0;
    for (uint32_t i = 0; i < g->n; i++)
        if (g->v[i].deadline && (!first || g->v[i].deadline < first))
            first = g->v[i].deadline;
    return first;
}

void groups_late(struct groups *g, int64_t now)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct group *q = &g->v[i];
        if (!q->deadline || now < q->deadline)
            continue;
        q->deadline = 0;
        if (q->state == LOADING)
            fail(g, q, "did not answer within --startup-timeout", NULL);
        else if (q->state == RESTARTING)
            start_when_gone(g, q);
        else
            signal_all(g, q, SIGKILL);
    }
}

/* ---------------------------------------------------------------- life */

void groups_start_replicas(struct groups *g)
{
    char name[32];
    for (uint32_t i = g->n_models; i < g->n; i++) {
        snprintf(name, sizeof(name), "r%" PRIu32, i - g->n_models);
        if (g->v[i].state == FREE)
            load(g, &g->v[i], name);
    }
}

uint32_t groups_ready_replicas(const struct groups *g)
{
    uint32_t n = 0;
    for (uint32_t i = g->n_models; i < g->n; i++)
        n += g->v[i].state == READY;
    return n;
}

const char *groups_failed(const struct groups *g)
{
    const char *why = NULL;
    for (uint32_t i = g->n_models; i < g->n; i++) {
        if (g->v[i].state != FREE || !*g->v[i].why)
            return NULL;
        why = g->v[i].why;
    }
    return why;
}

int groups_exit_code(const struct groups *g)
{
    return g->n > g->n_models ? g->v[g->n - 1].code : 0;
}

int groups_init(struct groups *g, const struct plan *base, uint32_t n_models, uint32_t n_replicas,
                struct child *children, struct err *e)
{
    const uint32_t n = n_models + n_replicas;
    int pair[2];
    *g = (struct groups){.base = base,
                         .n_models = n_models,
                         .n_ranks = base->cfg->num_shard,
                         .children = children,
                         .fd = -1,
                         .router_fd = -1};
    if (n == 0)
        return 0;
    if (!(g->v = calloc(n, sizeof(*g->v))))
        return err_nomem(e);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return err_sys(e, "socketpair");
    g->fd = pair[0];
    g->router_fd = pair[1];
    for (g->n = 0; g->n < n; g->n++) {
        g->v[g->n].slot = g->n;
        g->v[g->n].replica = g->n >= n_models;
        if (g->n >= n_models)
            machine_share(n_replicas, g->n - n_models,
                          base->cfg->device == DEVICE_CPU ? 0 : base->n, &g->v[g->n].part);
    }
    return 0;
}

void groups_free(struct groups *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        arena_reset(&g->v[i].arena);
    free(g->v);
    if (g->fd >= 0)
        close(g->fd);
    if (g->router_fd >= 0)
        close(g->router_fd);
}
