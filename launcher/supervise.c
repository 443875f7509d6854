#include "launcher/supervise.h"
#include "common/clock.h"
#include "common/log.h"
#include "launcher/child.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ECHO_MS: `timeout` and some terminals signal the process and then its group; that is one request.
 */
enum { NOTICE_MS = 10000, DOWNLOAD_STOP_MS = 10000, ECHO_MS = 500 };

enum step { DOWNLOAD, LOADING, SERVING, STOP_ROUTER, STOP_SHARDS, OVER };

/* All children in one array: [0] download, [1] router, then shard and probe of each rank. */
enum { CHILD_DOWNLOAD, CHILD_ROUTER, CHILD_RANKS };
enum role { ROLE_DOWNLOAD, ROLE_ROUTER, ROLE_SHARD, ROLE_PROBE };

struct supervisor {
    const struct plan *plan;
    struct child *children;
    struct pollfd *fds; /* [0] signals, then two for each child */
    uint32_t n, n_children, n_ready;
    enum step step;
    int64_t since, deadline, notice; /* ms; deadline and notice 0: none */
    int64_t asked;                   /* when we were last asked to stop */
    int signals;                     /* how often */
    int sigfd;
    bool failed;
    struct err *err;
};

struct step_row {
    const char *name;
    void (*enter)(struct supervisor *s);
    void (*lost)(struct supervisor *s, enum role role, uint32_t rank, struct child *c);
    void (*notice)(struct supervisor *s); /* every NOTICE_MS */
    void (*late)(struct supervisor *s);   /* the deadline has passed */
};
static const struct step_row rows[];

static struct child *shard(struct supervisor *s, uint32_t rank)
{
    return &s->children[CHILD_RANKS + 2 * rank];
}
static struct child *probe(struct supervisor *s, uint32_t rank)
{
    return &s->children[CHILD_RANKS + 2 * rank + 1];
}

static bool all_gone(const struct supervisor *s)
{
    for (uint32_t i = 0; i < s->n_children; i++)
        if (s->children[i].alive)
            return false;
    return true;
}

static void go(struct supervisor *s, enum step step)
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
static void download_enter(struct supervisor *s)
{
    struct command cmd;
    log_msg(LOG_INFO, "Starting check and download process for %s", s->plan->cfg->model_id);
    if (plan_download(s->plan, &cmd, s->err) ||
        child_start(&s->children[CHILD_DOWNLOAD], "download", &cmd, s->err))
        fail_err(s, "Download error");
}

static void download_lost(struct supervisor *s, enum role role, uint32_t rank, struct child *c)
{
    (void)role, (void)rank;
    if (WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0) {
        log_msg(LOG_INFO, "Successfully downloaded weights for %s", s->plan->cfg->model_id);
        go(s, LOADING);
    } else {
        fail(s, "Download error", "model-server download-weights", c);
    }
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

static void loading_enter(struct supervisor *s)
{
    struct command cmd;
    if (s->plan->cfg->startup_timeout)
        s->deadline = s->since + 1000 * (int64_t)s->plan->cfg->startup_timeout;
    for (uint32_t r = 0; r < s->n; r++) {
        LOG(LOG_INFO, "Starting shard", LOGI("rank", r));
        if (plan_shard(s->plan, r, &cmd, s->err) ||
            child_start(shard(s, r), label(s, "shard", r), &cmd, s->err) || start_probe(s, r)) {
            fail_err(s, "Shard cannot start");
            return;
        }
    }
}

static void loading_lost(struct supervisor *s, enum role role, uint32_t rank, struct child *c)
{
    char who[32];
    snprintf(who, sizeof(who), "rank %" PRIu32, rank);
    if (role == ROLE_SHARD) {
        log_msg(LOG_ERROR, "Shard %" PRIu32 " failed to start", rank);
        fail(s, "Shard cannot start", who, c);
    } else if (role == ROLE_PROBE && (!WIFEXITED(c->status) || WEXITSTATUS(c->status) != 0)) {
        snprintf(who, sizeof(who), "health probe of rank %" PRIu32, rank);
        fail(s, "Shard cannot start", who, c);
    } else if (role == ROLE_PROBE) {
        LOG(LOG_INFO, "Shard ready", LOGI("rank", rank),
            LOGD("seconds", (double)(clock_ms() - s->since) / 1e3));
        if (++s->n_ready == s->n)
            go(s, SERVING);
    }
}

static void loading_notice(struct supervisor *s)
{
    for (uint32_t r = 0; r < s->n; r++)
        if (probe(s, r)->alive)
            LOG(LOG_INFO, "Waiting for shard to be ready...", LOGI("rank", r));
}

static void loading_late(struct supervisor *s)
{
    for (uint32_t r = 0; r < s->n; r++)
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
    struct command cmd;
    log_msg(LOG_INFO, "Starting Webserver");
    if (plan_router(s->plan, &cmd, s->err) ||
        child_start(&s->children[CHILD_ROUTER], "router", &cmd, s->err))
        fail_err(s, "Webserver cannot start");
}

static void serving_lost(struct supervisor *s, enum role role, uint32_t rank, struct child *c)
{
    char who[32];
    if (role == ROLE_SHARD) {
        log_msg(LOG_ERROR, "Shard %" PRIu32 " crashed", rank);
        snprintf(who, sizeof(who), "rank %" PRIu32, rank);
        fail(s, "Shard failed", who, c);
    } else if (role == ROLE_ROUTER) {
        log_msg(LOG_ERROR, "Webserver Crashed");
        fail(s, "Webserver failed", "router", c);
    }
}

/* ---------------------------------------------------------------- STOP_ROUTER, STOP_SHARDS, OVER
 */
static int64_t grace_ms(const struct supervisor *s)
{
    return 1000 * (int64_t)s->plan->cfg->graceful_termination_timeout;
}

static void stop_router_enter(struct supervisor *s)
{
    log_msg(LOG_INFO, "Terminating webserver");
    child_signal(&s->children[CHILD_ROUTER], SIGTERM);
    s->deadline = s->since + grace_ms(s);
}

static void stop_router_lost(struct supervisor *s, enum role role, uint32_t rank, struct child *c)
{
    (void)rank, (void)c;
    if (role == ROLE_ROUTER)
        go(s, STOP_SHARDS);
}

static void stop_router_late(struct supervisor *s)
{
    log_msg(LOG_WARN, "webserver did not end within --graceful-termination-timeout: killing it");
    child_signal(&s->children[CHILD_ROUTER], SIGKILL);
}

static void stop_shards_enter(struct supervisor *s)
{
    log_msg(LOG_INFO, "Shutting down shards");
    for (uint32_t i = 0; i < s->n_children; i++)
        child_signal(&s->children[i], SIGTERM);
    s->deadline = s->since + (s->children[CHILD_DOWNLOAD].alive ? DOWNLOAD_STOP_MS : grace_ms(s));
    if (all_gone(s))
        go(s, OVER);
}

static void stop_shards_lost(struct supervisor *s, enum role role, uint32_t rank, struct child *c)
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

static void over_enter(struct supervisor *s) { (void)s; }

static const struct step_row rows[] = {
    [DOWNLOAD] = {"download", download_enter, download_lost, NULL, NULL},
    [LOADING] = {"loading", loading_enter, loading_lost, loading_notice, loading_late},
    [SERVING] = {"serving", serving_enter, serving_lost, NULL, NULL},
    [STOP_ROUTER] = {"stop router", stop_router_enter, stop_router_lost, NULL, stop_router_late},
    [STOP_SHARDS] = {"stop shards", stop_shards_enter, stop_shards_lost, NULL, kill_all},
    [OVER] = {"over", over_enter, NULL, NULL, NULL},
};

/* ---------------------------------------------------------------- the loop */
/* Also reaps what is not ours: as process 1 of a container we inherit orphans. */
static void reap(struct supervisor *s)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        uint32_t i = 0;
        while (i < s->n_children && !(s->children[i].alive && s->children[i].pid == pid))
            i++;
        if (i == s->n_children)
            continue;
        struct child *c = &s->children[i];
        enum role role = i < CHILD_RANKS         ? (enum role)i
                         : (i - CHILD_RANKS) % 2 ? ROLE_PROBE
                                                 : ROLE_SHARD;
        child_ended(c, status);
        if (s->step != OVER)
            rows[s->step].lost(s, role, i < CHILD_RANKS ? 0 : (i - CHILD_RANKS) / 2, c);
    }
}

static void asked_to_stop(struct supervisor *s, uint32_t sig)
{
    int64_t now = clock_ms();
    if (s->signals && now - s->asked < ECHO_MS)
        return;
    log_msg(LOG_INFO, "signal %" PRIu32 " (%s) received, %s", sig, strsignal((int)sig),
            s->signals ? "killing what is left" : "starting graceful shutdown");
    s->asked = now;
    if (s->signals++)
        kill_all(s);
    else
        stop(s);
}

static void read_signals(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->sigfd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (info.ssi_signo != SIGCHLD)
            asked_to_stop(s, info.ssi_signo);
    reap(s);
}

static int wait_ms(const struct supervisor *s)
{
    int64_t next = s->deadline, left;
    if (s->notice && (!next || s->notice < next))
        next = s->notice;
    if (!next)
        return -1;
    left = next - clock_ms();
    return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

static void turn(struct supervisor *s)
{
    s->fds[0] = (struct pollfd){s->sigfd, POLLIN, 0};
    for (uint32_t i = 0; i < s->n_children; i++)
        for (int k = 0; k < 2; k++)
            s->fds[1 + 2 * i + (uint32_t)k] =
                (struct pollfd){s->children[i].pid ? s->children[i].fds[k] : -1, POLLIN, 0};
    if (poll(s->fds, 1 + 2 * s->n_children, wait_ms(s)) < 0 && errno != EINTR)
        abort(); /* a bad set is our own mistake */
    for (uint32_t i = 0; i < 2 * s->n_children; i++)
        if (s->fds[1 + i].revents)
            child_read(&s->children[i / 2], (int)(i % 2));
    if (s->fds[0].revents)
        read_signals(s);

    int64_t now = clock_ms();
    if (s->notice && now >= s->notice) {
        s->notice = now + NOTICE_MS;
        rows[s->step].notice(s);
    }
    if (s->deadline && now >= s->deadline) {
        s->deadline = 0;
        rows[s->step].late(s);
    }
}

int supervise(const struct plan *p, bool download, struct err *e)
{
    struct supervisor s = {.plan = p, .n = p->cfg->num_shard, .err = e};
    sigset_t set;
    int rc = -1;

    s.n_children = CHILD_RANKS + 2 * s.n;
    s.children = calloc(s.n_children, sizeof(*s.children));
    s.fds = calloc(1 + 2 * s.n_children, sizeof(*s.fds));
    sigemptyset(&set);
    for (const int *sig = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGCHLD, 0}; *sig; sig++)
        sigaddset(&set, *sig);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN); /* nobody reads our log: no reason to stop serving */
    s.sigfd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (!s.children || !s.fds)
        err_nomem(e);
    else if (s.sigfd < 0)
        err_sys(e, "signalfd");
    else {
        for (go(&s, download ? DOWNLOAD : LOADING); s.step != OVER;)
            turn(&s);
        rc = s.failed ? -1 : 0;
    }
    for (uint32_t i = 0; s.children && i < s.n_children; i++)
        child_free(&s.children[i]);
    free(s.children);
    free(s.fds);
    if (s.sigfd >= 0)
        close(s.sigfd);
    return rc;
}
