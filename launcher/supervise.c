#include "launcher/supervise.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/startup.h"
#include "launcher/child.h"
#include "launcher/draft.h"
#include "launcher/groups.h"
#include "launcher/machine.h"
#include "launcher/notify.h"
#include "launcher/progress.h"
#include "launcher/restarts.h"
#include "launcher/sweep.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* LAST_MS: the end of the grace time, for the error events of requests that did not finish in it,
 * and for the shards. ECHO_MS: `timeout` and some terminals signal the process and then its group;
 * that is one request.
 */
enum { NOTICE_MS = 10000, SHORT_GRACE_MS = 10000, ECHO_MS = 500, LAST_MS = 2000 };

enum stop_step { DOWNLOAD, LOADING, SERVING, RESTARTING, STOP_ROUTER, STOP_SHARDS, OVER };

/* All children in one array: [0] download, [1] router, then shard and probe of each rank of the
 * first model, then those of the groups that the router asks for; last the draft model's. */
enum { CHILD_DOWNLOAD, CHILD_ROUTER, CHILD_RANKS };
enum child_role { ROLE_DOWNLOAD, ROLE_ROUTER, ROLE_SHARD, ROLE_PROBE };

struct supervisor {
    const struct plan *plan;
    struct child *children;
    uint32_t *ended;    /* in one turn */
    struct pollfd *fds; /* [0] signals, [1] the router's commands, then two for each child */
    struct plan own;    /* the plan, with the channel */
    struct groups groups;
    struct draft draft;
    uint32_t n, n_children, n_ready;
    struct progress progress; /* of the shards that load */
    struct notify notify;     /* the service manager */
    bool served;              /* once: all shards were ready */
    struct restarts restarts;
    uint32_t n_checked; /* of the plan's sources */
    enum stop_step step;
    int64_t since, deadline, notice; /* ms; deadline and notice 0: none */
    int64_t watched;                 /* ms: when frozen children were last looked for */
    int64_t asked;                   /* when we were last asked to stop */
    int64_t stop_by;                 /* the end of the grace time */
    bool hurried;                    /* the router was told to end its requests */
    int signals;                     /* how often */
    int sigfd;
    bool failed;
    struct err *err;
};

struct step_row {
    const char *name;
    void (*enter)(struct supervisor *s);
    void (*lost)(struct supervisor *s, enum child_role role, uint32_t rank, struct child *c);
    void (*notice)(struct supervisor *s); /* every NOTICE_MS */
    void (*late)(struct supervisor *s);   /* the deadline has passed */
};
static const struct step_row rows[];

/* Ranks are those of this machine: [plan->first, plan->first + n). */
static struct child *shard(struct supervisor *s, uint32_t rank)
{
    return &s->children[CHILD_RANKS + 2 * (rank - s->plan->first)];
}
static struct child *probe(struct supervisor *s, uint32_t rank) { return shard(s, rank) + 1; }
static bool is_rank(const struct supervisor *s, uint32_t rank)
{
    return rank < s->plan->first + s->n;
}

static bool all_gone(const struct supervisor *s)
{
    for (uint32_t i = 0; i < s->n_children; i++)
        if (s->children[i].alive)
            return false;
    return true;
}

static void go(struct supervisor *s, enum stop_step step)
{
    LOG(LOG_DEBUG, "step", LOGS("from", rows[s->step].name), LOGS("to", rows[step].name));
    s->step = step;
    s->since = clock_ms();
    s->deadline = 0;
    s->notice = rows[step].notice ? s->since + NOTICE_MS : 0;
    rows[step].enter(s);
}

static void stop(struct supervisor *s)
{
    if (s->step < STOP_ROUTER)
        go(s, s->children[CHILD_ROUTER].alive ? STOP_ROUTER : STOP_SHARDS);
}

/* The first failure is the cause; what dies afterwards dies of it. */
static void fail(struct supervisor *s, const char *what, const char *who, const struct child *c)
{
    char cause[400] = "";
    if (s->failed || s->signals)
        return;
    s->failed = true;
    if (c)
        child_cause(c, cause, sizeof(cause));
    err_set(s->err, ERR_SYSTEM, "%s: %s %s", what, who, cause);
    stop(s);
}

static void fail_err(struct supervisor *s, const char *what)
{
    if (s->failed)
        return;
    s->failed = true;
    err_wrap(s->err, "%s", what);
    stop(s);
}

static const char *label(struct supervisor *s, const char *what, uint32_t rank)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%s-%" PRIu32, what, rank);
    const char *p = arena_strdup(s->plan->arena, text, (size_t)n);
    return p ? p : what;
}

/* ---------------------------------------------------------------- DOWNLOAD */
/* One source after the other; a folder needs no check that loading does not make. */
static void download_enter(struct supervisor *s)
{
    struct command cmd;
    while (s->n_checked < s->plan->n_sources && machine_is_dir(s->plan->sources[s->n_checked].id))
        s->n_checked++;
    if (s->n_checked == s->plan->n_sources) {
        go(s, LOADING);
        return;
    }
    log_msg(LOG_INFO, "Starting check and download process for %s",
            s->plan->sources[s->n_checked].id);
    child_free(&s->children[CHILD_DOWNLOAD]); /* of the source before */
    if (plan_download(s->plan, s->n_checked, &cmd, s->err) ||
        child_start(&s->children[CHILD_DOWNLOAD], "download", &cmd, s->err))
        fail_err(s, "Download error");
}

static void download_lost(struct supervisor *s, enum child_role role, uint32_t rank,
                          struct child *c)
{
    (void)role, (void)rank;
    if (WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0) {
        log_msg(LOG_INFO, "Successfully downloaded weights for %s",
                s->plan->sources[s->n_checked++].id);
        go(s, DOWNLOAD);
    } else {
        fail(s, "Download error", "model-server download-weights", c);
    }
}

/* ---------------------------------------------------------------- RESTARTING */
/* Under a router that waits for them, and not too often. Who has not served yet may fail the same
 * way for ever, and says why; but the kernel kills also for others' use of memory: once. */
static bool may_restart(struct supervisor *s, const struct child *c)
{
    const bool killed = WIFSIGNALED(c->status) && WTERMSIG(c->status) == SIGKILL;
    return (s->served || (killed && !s->restarts.n)) && s->children[CHILD_ROUTER].alive &&
           restarts_left(&s->restarts, s->plan, clock_ms());
}

static void load_when_gone(struct supervisor *s)
{
    for (uint32_t r = s->plan->first; is_rank(s, r); r++)
        if (shard(s, r)->alive || probe(s, r)->alive)
            return;
    for (uint32_t r = s->plan->first; is_rank(s, r); r++) {
        child_free(shard(s, r)); /* of the life before */
        child_free(probe(s, r));
    }
    sweep_shards(s->plan);
    go(s, LOADING);
}

/* The other ranks have nothing to save, and may hang in a collective. */
static void restarting_enter(struct supervisor *s)
{
    s->restarts.n++;
    LOG(LOG_WARN, "Starting the shards again", LOGI("restart", s->restarts.n),
        LOGI("most_in_an_hour", s->plan->cfg->max_shard_restarts));
    for (uint32_t r = s->plan->first; is_rank(s, r); r++) {
        child_signal(shard(s, r), SIGKILL);
        child_signal(probe(s, r), SIGKILL);
    }
    load_when_gone(s);
}

static void router_lost(struct supervisor *s, const struct child *c)
{
    log_msg(LOG_ERROR, "Webserver Crashed");
    fail(s, "Webserver failed", "router", c);
}

static void restarting_lost(struct supervisor *s, enum child_role role, uint32_t rank,
                            struct child *c)
{
    (void)rank;
    if (role == ROLE_ROUTER)
        router_lost(s, c);
    else
        load_when_gone(s);
}

/* A rank has died; `what` that is, where it is not started again. */
static void rank_lost(struct supervisor *s, const char *what, uint32_t rank, const struct child *c)
{
    char who[32], cause[400];
    snprintf(who, sizeof(who), "rank %" PRIu32, rank);
    if (!may_restart(s, c)) {
        fail(s, what, who, c);
        return;
    }
    child_cause(c, cause, sizeof(cause));
    log_msg(LOG_ERROR, "%s: %s %s", what, who, cause);
    go(s, RESTARTING);
}

/* ---------------------------------------------------------------- LOADING */
/* The probe waits inside its own Health call; see health.h. */
static int start_probe(struct supervisor *s, uint32_t rank)
{
    struct command cmd;
    if (plan_probe(s->plan, rank, &cmd, s->err))
        return -1;
    return child_start(probe(s, rank), label(s, "probe", rank), &cmd, s->err);
}

/* First of all: its port answers probes while the shards load, and it finds them by itself. */
static int start_router(struct supervisor *s)
{
    struct command cmd;
    if (s->plan->first || s->children[CHILD_ROUTER].alive)
        return 0;
    log_msg(LOG_INFO, "Starting Webserver");
    if (plan_router(s->plan, &cmd, s->err) == 0 &&
        child_start(&s->children[CHILD_ROUTER], "router", &cmd, s->err) == 0)
        return 0;
    fail_err(s, "Webserver cannot start");
    return -1;
}

static void loading_enter(struct supervisor *s)
{
    struct command cmd;
    s->n_ready = 0;
    if (start_router(s))
        return;
    if (s->groups.n > s->groups.n_models) /* which have deadlines of their own */
        groups_start_replicas(&s->groups);
    else if (s->plan->cfg->startup_timeout)
        s->deadline = s->since + 1000 * (int64_t)s->plan->cfg->startup_timeout;
    for (uint32_t r = s->plan->first; is_rank(s, r); r++) {
        LOG(LOG_INFO, "Starting shard", LOGI("rank", r));
        if (plan_shard(s->plan, r, &cmd, s->err) ||
            child_start(shard(s, r), label(s, "shard", r), &cmd, s->err) || start_probe(s, r)) {
            fail_err(s, "Shard cannot start");
            return;
        }
    }
}

static void loading_lost(struct supervisor *s, enum child_role role, uint32_t rank, struct child *c)
{
    char who[32];
    if (role == ROLE_SHARD) {
        log_msg(LOG_ERROR, "Shard %" PRIu32 " failed to start", rank);
        rank_lost(s, "Shard cannot start", rank, c);
    } else if (role == ROLE_PROBE && (!WIFEXITED(c->status) || WEXITSTATUS(c->status) != 0)) {
        snprintf(who, sizeof(who), "health probe of rank %" PRIu32, rank);
        fail(s, "Shard cannot start", who, c);
    } else if (role == ROLE_PROBE) {
        LOG(LOG_INFO, "Shard ready", LOGI("rank", rank),
            LOGD("seconds", (double)(clock_ms() - s->since) / 1e3));
        if (++s->n_ready == s->n)
            go(s, SERVING);
    } else if (role == ROLE_ROUTER) {
        router_lost(s, c);
    }
}

static void loading_notice(struct supervisor *s)
{
    for (uint32_t r = s->plan->first; is_rank(s, r); r++)
        if (probe(s, r)->alive) {
            char words[96];
            const struct startup_view v = startup_look(s->progress.board, r, 1);
            startup_words(&v, words, sizeof(words));
            LOG(LOG_INFO, "Waiting for shard to be ready...", LOGI("rank", r), LOGS("at", words));
        }
}

static void loading_late(struct supervisor *s)
{
    for (uint32_t r = s->plan->first; is_rank(s, r); r++)
        if (probe(s, r)->alive) {
            char who[96];
            snprintf(who, sizeof(who),
                     "rank %" PRIu32 " did not answer within %" PRIu32 " s (--startup-timeout)", r,
                     s->plan->cfg->startup_timeout);
            fail(s, "Shard cannot start", who, NULL);
            return;
        }
}

/* ---------------------------------------------------------------- SERVING */
static void serving_enter(struct supervisor *s)
{
    progress_end(&s->progress);
    if (s->plan->first) {
        s->served = true;
        LOG(LOG_INFO, "Serving the router of machine 0", LOGI("first_rank", s->plan->first),
            LOGI("ranks", s->n));
        return;
    }
    LOG(LOG_INFO, "All shards ready", LOGI("ranks", s->n),
        LOGI("replicas", groups_ready_replicas(&s->groups)));
    if (!s->served)
        draft_start(&s->draft);
    s->served = true;
}

static void serving_lost(struct supervisor *s, enum child_role role, uint32_t rank, struct child *c)
{
    if (role == ROLE_SHARD && s->plan->first && WIFEXITED(c->status) && !WEXITSTATUS(c->status)) {
        log_msg(LOG_INFO, "machine 0 has ended");
        stop(s);
    } else if (role == ROLE_SHARD) {
        log_msg(LOG_ERROR, "Shard %" PRIu32 " crashed", rank);
        rank_lost(s, "Shard failed", rank, c);
    } else if (role == ROLE_ROUTER) {
        router_lost(s, c);
    }
}

/* ---------------------------------------------------------------- STOP_ROUTER, STOP_SHARDS, OVER
 */
static int64_t grace_ms(const struct supervisor *s)
{
    return 1000 * (int64_t)s->plan->cfg->graceful_termination_timeout;
}

static int64_t last_ms(const struct supervisor *s)
{
    return grace_ms(s) / 4 < LAST_MS ? grace_ms(s) / 4 : LAST_MS;
}

static void stop_router_enter(struct supervisor *s)
{
    log_msg(LOG_INFO, "Terminating webserver");
    groups_end(&s->groups);
    child_signal(&s->children[CHILD_ROUTER], SIGTERM);
    s->stop_by = s->since + grace_ms(s);
    s->deadline = s->stop_by - last_ms(s);
}

/* However it was asked to stop: what it did not finish was lost. */
static void stop_router_lost(struct supervisor *s, enum child_role role, uint32_t rank,
                             struct child *c)
{
    char cause[400];
    (void)rank;
    if (role != ROLE_ROUTER)
        return;
    if (!s->failed && (!WIFEXITED(c->status) || WEXITSTATUS(c->status) != 0)) {
        s->failed = true;
        child_cause(c, cause, sizeof(cause));
        err_set(s->err, ERR_SYSTEM, "Webserver failed while it shut down: router %s", cause);
    }
    go(s, STOP_SHARDS);
}

/* First its requests end, then it does. */
static void stop_router_late(struct supervisor *s)
{
    log_msg(LOG_WARN, "webserver did not end within --graceful-termination-timeout: %s",
            s->hurried ? "killing it" : "ending its requests");
    child_signal(&s->children[CHILD_ROUTER], s->hurried ? SIGKILL : SIGTERM);
    if (!s->hurried)
        s->deadline = s->stop_by - last_ms(s) / 2;
    s->hurried = true;
}

static void stop_shards_enter(struct supervisor *s)
{
    log_msg(LOG_INFO, "Shutting down shards");
    draft_stop(&s->draft);
    groups_end(&s->groups);
    for (uint32_t i = 0; i < s->n_children; i++)
        child_signal(&s->children[i], SIGTERM);
    s->deadline = s->stop_by ? s->stop_by : s->since + grace_ms(s);
    /* a download, or shards without a router, have nothing to finish */
    if ((s->children[CHILD_DOWNLOAD].alive || s->failed) && s->deadline > s->since + SHORT_GRACE_MS)
        s->deadline = s->since + SHORT_GRACE_MS;
    if (all_gone(s))
        go(s, OVER);
}

static void stop_shards_lost(struct supervisor *s, enum child_role role, uint32_t rank,
                             struct child *c)
{
    (void)role, (void)rank, (void)c;
    if (all_gone(s))
        go(s, OVER);
}

static void kill_all(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->n_children; i++)
        child_signal(&s->children[i], SIGKILL);
}

static void over_enter(struct supervisor *s) { sweep_shards(s->plan); }

static const struct step_row rows[] = {
    [DOWNLOAD] = {"download", download_enter, download_lost, NULL, NULL},
    [RESTARTING] = {"restarting", restarting_enter, restarting_lost, NULL, NULL},
    [LOADING] = {"loading", loading_enter, loading_lost, loading_notice, loading_late},
    [SERVING] = {"serving", serving_enter, serving_lost, NULL, NULL},
    [STOP_ROUTER] = {"stop router", stop_router_enter, stop_router_lost, NULL, stop_router_late},
    [STOP_SHARDS] = {"stop shards", stop_shards_enter, stop_shards_lost, NULL, kill_all},
    [OVER] = {"over", over_enter, NULL, NULL, NULL},
};

/* ---------------------------------------------------------------- the loop */
static void report_end(struct supervisor *s, uint32_t i)
{
    const uint32_t groups = CHILD_RANKS + 2 * s->n;
    struct child *c = &s->children[i];
    if (i < CHILD_RANKS) {
        if (s->step != OVER)
            rows[s->step].lost(s, (enum child_role)i, 0, c);
    } else if (i < groups) {
        const uint32_t k = i - CHILD_RANKS;
        if (s->step != OVER)
            rows[s->step].lost(s, k % 2 ? ROLE_PROBE : ROLE_SHARD, s->plan->first + k / 2, c);
    } else {
        if (c == s->draft.child)
            draft_lost(&s->draft);
        else
            groups_lost(&s->groups, i - groups);
        if (s->step == STOP_SHARDS && all_gone(s))
            go(s, OVER);
    }
}

/* Of several that have ended, who was killed comes first: the others may have ended of it. Also
 * reaps what is not ours: as process 1 of a container we inherit orphans. */
static void reap(struct supervisor *s)
{
    int status;
    pid_t pid;
    uint32_t n = 0, first = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        uint32_t i = 0;
        while (i < s->n_children && !(s->children[i].alive && s->children[i].pid == pid))
            i++;
        if (i == s->n_children)
            continue;
        child_ended(&s->children[i], status);
        s->ended[n] = i;
        if (WIFSIGNALED(status)) {
            s->ended[n] = s->ended[first];
            s->ended[first++] = i;
        }
        n++;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!s->children[s->ended[i]].alive) /* not started again meanwhile, for one before it */
            report_end(s, s->ended[i]);
}

static void asked_to_stop(struct supervisor *s, uint32_t sig)
{
    int64_t now = clock_ms();
    if (s->signals && now - s->asked < ECHO_MS)
        return;
    log_msg(LOG_INFO, "signal %" PRIu32 " (%s) received, %s", sig, strsignal((int)sig),
            s->signals ? "ending what is left" : "starting graceful shutdown");
    s->asked = now;
    if (!s->signals++) {
        stop(s);
    } else if (s->step == STOP_ROUTER && !s->hurried) { /* it still says so to its clients */
        s->hurried = true;
        s->stop_by = now + LAST_MS;
        s->deadline = now + LAST_MS / 2;
        child_signal(&s->children[CHILD_ROUTER], SIGTERM);
    } else {
        kill_all(s);
    }
}

static void read_signals(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->sigfd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (info.ssi_signo == SIGHUP && s->plan->cfg->tls_cert && *s->plan->cfg->tls_cert)
            child_signal(&s->children[CHILD_ROUTER], SIGHUP); /* to read the certificate again */
        else if (info.ssi_signo == SIGHUP && s->notify.fd >= 0)
            log_msg(LOG_INFO, "signal 1 (Hangup) received: there is no certificate to read again");
        else if (info.ssi_signo != SIGCHLD)
            asked_to_stop(s, info.ssi_signo);
    reap(s);
}

static void watch_children(struct supervisor *s, int64_t now)
{
    uint32_t turn_ms = (uint32_t)(now - s->watched);
    if (turn_ms < LIVENESS_TURN_MS)
        return;
    s->watched = now;
    for (uint32_t i = 0; i < s->n_children; i++)
        child_watch(&s->children[i], turn_ms, 1000 * s->plan->cfg->heartbeat_timeout);
}

/* Ready is what /readyz says: the shards are, and the router has warmed them up. */
static void notify(struct supervisor *s, int64_t now)
{
    const bool router =
        s->plan->first || startup_look(s->progress.board, STARTUP_ROUTER, 1).phase == STARTUP_READY;
    const enum stop_step step = s->step == SERVING && !router ? LOADING : s->step;
    notify_turn(&s->notify, step == SERVING, step >= STOP_ROUTER, rows[step].name, now);
}

/* Where there are several replicas, or none: they are the groups', and one is enough to serve. */
static void watch_replicas(struct supervisor *s)
{
    const uint32_t n = s->groups.n - s->groups.n_models;
    const char *why = n ? groups_failed(&s->groups) : NULL;
    if (s->n > 0 || s->step >= STOP_ROUTER)
        return;
    if (why)
        fail(s, s->served ? "Shard failed" : "Shard cannot start", why, NULL);
    else if (s->step == LOADING && (n == 0 || groups_ready_replicas(&s->groups) > 0))
        go(s, SERVING);
}

static int wait_ms(const struct supervisor *s)
{
    int64_t next = s->deadline, left;
    const int64_t more[] = {groups_deadline(&s->groups), draft_deadline(&s->draft),
                            s->watched + LIVENESS_TURN_MS};
    for (int i = 0; i < 3; i++)
        if (more[i] && (!next || more[i] < next))
            next = more[i];
    if (s->notice && (!next || s->notice < next))
        next = s->notice;
    if (s->step == LOADING && s->progress.shown && (!next || s->progress.next < next))
        next = s->progress.next;
    if (!next)
        return -1;
    left = next - clock_ms();
    return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

static void turn(struct supervisor *s)
{
    s->fds[0] = (struct pollfd){s->sigfd, POLLIN, 0};
    s->fds[1] = (struct pollfd){s->step < STOP_ROUTER ? s->groups.fd : -1, POLLIN, 0};
    for (uint32_t i = 0; i < s->n_children; i++)
        for (int k = 0; k < 2; k++)
            s->fds[2 + 2 * i + (uint32_t)k] =
                (struct pollfd){s->children[i].pid ? s->children[i].fds[k] : -1, POLLIN, 0};
    if (poll(s->fds, 2 + 2 * s->n_children, wait_ms(s)) < 0 && errno != EINTR)
        abort(); /* a bad set is our own mistake */
    for (uint32_t i = 0; i < 2 * s->n_children; i++)
        if (s->fds[2 + i].revents)
            child_read(&s->children[i / 2], (int)(i % 2));
    if (s->fds[1].revents)
        groups_read(&s->groups);
    if (s->fds[0].revents)
        read_signals(s);

    int64_t now = clock_ms();
    if (s->step == LOADING)
        progress_show(&s->progress, now);
    if (s->notice && now >= s->notice) {
        s->notice = now + NOTICE_MS;
        rows[s->step].notice(s);
    }
    if (s->deadline && now >= s->deadline) {
        s->deadline = 0;
        rows[s->step].late(s);
    }
    watch_children(s, now);
    notify(s, now);
    groups_late(&s->groups, now);
    watch_replicas(s);
    draft_late(&s->draft, now);
}

int supervise(const struct plan *p, struct err *e)
{
    const uint32_t n_replicas = p->cfg->replicas;
    struct supervisor s = {.own = *p, .n = n_replicas == 1 ? p->n : 0, .err = e};
    s.watched = clock_ms();
    notify_init(&s.notify, p->environ);
    const uint32_t n_groups = p->cfg->models_folder ? p->cfg->max_loaded_models : 0;
    const uint32_t n_own = n_replicas == 1 ? 0 : n_replicas;
    sigset_t set;
    int rc = -1;

    s.plan = &s.own;
    s.n_children = CHILD_RANKS + 2 * (s.n + p->n * (n_groups + n_own)) + 1;
    s.children = calloc(s.n_children, sizeof(*s.children));
    s.ended = calloc(s.n_children, sizeof(*s.ended));
    s.fds = calloc(2 + 2 * s.n_children, sizeof(*s.fds));
    sigemptyset(&set);
    for (const int *sig = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGCHLD, 0}; *sig; sig++)
        sigaddset(&set, *sig);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN); /* an unread log is no reason to stop serving */
    s.sigfd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (!s.children || !s.ended || !s.fds)
        err_nomem(e);
    else if (s.sigfd < 0)
        err_sys(e, "signalfd");
    else if (progress_init(&s.progress, p->first, p->n, e) == 0 &&
             groups_init(&s.groups, &s.own, n_groups, n_own, &s.children[CHILD_RANKS + 2 * s.n],
                         e) == 0) {
        s.own.startup_fd = s.progress.fd;
        s.own.router_fd = n_groups ? s.groups.router_fd : 0;
        draft_init(&s.draft, &s.own, &s.children[s.n_children - 1]);
        for (go(&s, DOWNLOAD); s.step != OVER;)
            turn(&s);
        rc = s.failed ? -1 : 0;
    }
    for (uint32_t i = 0; s.children && i < s.n_children; i++)
        child_free(&s.children[i]);
    progress_free(&s.progress);
    groups_free(&s.groups);
    draft_free(&s.draft);
    notify_free(&s.notify);
    free(s.children);
    free(s.ended);
    free(s.fds);
    if (s.sigfd >= 0)
        close(s.sigfd);
    return rc;
}
