#include "launcher/supervise.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/process/startup.h"
#include "launcher/supervise_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* `timeout` and some terminals signal the process and then its group: this counts as one
 * request. */
enum { ECHO_MS = 500 };

static void report_end(struct supervisor *s, uint32_t i)
{
    const uint32_t groups = CHILD_RANKS + 2 * s->n;
    struct child *c = &s->children[i];
    if (i < CHILD_RANKS) {
        if (s->step != OVER)
            step_rows[s->step].lost(s, (enum child_role)i, 0, c);
    } else if (i < groups) {
        const uint32_t k = i - CHILD_RANKS;
        if (s->step != OVER)
            step_rows[s->step].lost(s, k % 2 ? ROLE_PROBE : ROLE_SHARD, s->plan->first + k / 2, c);
    } else {
        if (c == s->draft.child)
            draft_lost(&s->draft);
        else
            groups_lost(&s->groups, i - groups);
        if (s->step == STOP_SHARDS && step_all_gone(s))
            step_go(s, OVER);
    }
}

/* True of a health probe: they alternate with shards, before the draft model. */
static bool is_probe(const struct supervisor *s, uint32_t i)
{
    return i >= CHILD_RANKS && i + 1 < s->n_children && (i - CHILD_RANKS) % 2;
}

/* The order in which ends of one turn are reported. A shard whose probe has ended well served
 * before it ended itself. Killed processes may be the cause of the other ends. */
static int order_of_end(const struct supervisor *s, uint32_t i)
{
    const int status = s->children[i].status;
    const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return well && is_probe(s, i) ? 0 : WIFSIGNALED(status) ? 1 : 2;
}

/* Inserts child `i` behind those of its order. */
static void note_end(struct supervisor *s, uint32_t n, uint32_t i)
{
    const int order = order_of_end(s, i);
    for (; n > 0 && order_of_end(s, s->ended[n - 1]) > order; n--)
        s->ended[n] = s->ended[n - 1];
    s->ended[n] = i;
}

/* Also reaps unrelated processes: process 1 of a container inherits orphans. */
static void reap(struct supervisor *s)
{
    int status;
    pid_t pid;
    uint32_t n = 0;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        uint32_t i = 0;
        while (i < s->n_children && !(s->children[i].alive && s->children[i].pid == pid))
            i++;
        if (i == s->n_children)
            continue;
        if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
            child_stopped(&s->children[i], WIFSTOPPED(status));
            continue;
        }
        child_ended(&s->children[i], status);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !s->children[i].killed)
            s->children[i].no_memory = refused_memory(&s->refused, &cgroup_self, clock_ms());
        note_end(s, n++, i);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!s->children[s->ended[i]].alive) /* not restarted meanwhile, for an earlier one */
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
        step_stop(s);
    } else if (s->step == STOP_ROUTER && !s->ended_requests) {
        s->ended_requests = true; /* the router still sends errors to its clients */
        s->stop_by = now + LAST_MS;
        s->deadline = now + LAST_MS / 2;
        child_signal(&s->children[CHILD_ROUTER], SIGTERM);
    } else {
        step_kill_all(s);
    }
}

static void read_signals(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->sigfd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        /* to reload the certificate */
        if (info.ssi_signo == SIGHUP && s->plan->cfg->tls_cert && *s->plan->cfg->tls_cert)
            child_signal(&s->children[CHILD_ROUTER], SIGHUP);
        else if (info.ssi_signo == SIGHUP && s->notify.fd >= 0)
            log_msg(LOG_INFO, "signal 1 (Hangup) received: no certificate to reload");
        else if (info.ssi_signo != SIGCHLD)
            asked_to_stop(s, info.ssi_signo);
    reap(s);
}

/* Interval between checks for frozen children, and for messages to a service manager. */
static uint32_t look_ms(const struct supervisor *s)
{
    if (s->notify.fd >= 0 && !s->notify.ready)
        return LIVENESS_TURN_MS;
    for (uint32_t i = 0; i < s->n_children; i++)
        if (s->children[i].alive && liveness_doubtful(&s->children[i].liveness))
            return LIVENESS_TURN_MS;
    return LIVENESS_REST_MS;
}

static void watch_children(struct supervisor *s, int64_t now)
{
    uint32_t turn_ms = (uint32_t)(now - s->watched);
    if (turn_ms < look_ms(s))
        return;
    s->watched = now;
    refused_look(&s->refused, &cgroup_self, now);
    for (uint32_t i = 0; i < s->n_children; i++)
        child_watch(&s->children[i], turn_ms, 1000 * s->plan->cfg->heartbeat_timeout);
}

/* Ready has the meaning of /readyz: the shards are ready and the router has warmed them up. */
static void notify(struct supervisor *s, int64_t now)
{
    const bool router =
        s->plan->first || startup_look(s->progress.board, STARTUP_ROUTER, 1).phase == STARTUP_READY;
    const enum stop_step step = s->step == SERVING && !router ? LOADING : s->step;
    notify_turn(&s->notify, step == SERVING, step >= STOP_ROUTER, step_rows[step].name, now);
}

/* If there are several replicas, or no local one: the groups manage them, and one is enough to
 * serve. */
static void watch_replicas(struct supervisor *s)
{
    const uint32_t n = s->groups.n - s->groups.n_models;
    const char *why = n ? groups_failed(&s->groups) : NULL;
    if (s->n > 0 || s->step >= STOP_ROUTER)
        return;
    if (why)
        step_fail_code(s, s->served ? "Shard failed" : "Shard cannot start", why,
                       groups_exit_code(&s->groups));
    else if (s->step == LOADING && (n == 0 || groups_ready_replicas(&s->groups) > 0))
        step_go(s, SERVING);
}

static int wait_ms(const struct supervisor *s)
{
    int64_t next = s->deadline, left;
    const int64_t more[] = {groups_deadline(&s->groups), draft_deadline(&s->draft),
                            s->watched + look_ms(s), s->notice,
                            s->notify.every ? s->notify.due : 0};
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
        if (more[i] && (!next || more[i] < next))
            next = more[i];
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
    /* an invalid set is a bug */
    if (poll(s->fds, 2 + 2 * s->n_children, wait_ms(s)) < 0 && errno != EINTR)
        abort();
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
        step_rows[s->step].notice(s);
    }
    if (s->deadline && now >= s->deadline) {
        s->deadline = 0;
        step_rows[s->step].late(s);
    }
    watch_children(s, now);
    notify(s, now);
    groups_late(&s->groups, now);
    watch_replicas(s);
    draft_late(&s->draft, now);
}

/* SIGHUP reloads the certificate. Without one it ends the service, unless it was ignored at the
 * start, as by nohup: the kernel keeps an ignored signal that is blocked. */
static void signals_of(const struct plan *p, sigset_t *set)
{
    struct sigaction hangup;
    sigemptyset(set);
    for (const int *sig = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGCHLD, 0}; *sig; sig++)
        sigaddset(set, *sig);
    if (!(p->cfg->tls_cert && *p->cfg->tls_cert) && sigaction(SIGHUP, NULL, &hangup) == 0 &&
        hangup.sa_handler == SIG_IGN)
        sigdelset(set, SIGHUP);
}

void supervise_block(const struct plan *p)
{
    sigset_t set;
    signals_of(p, &set);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

int supervise(const struct plan *p, int *code, struct err *e)
{
    const uint32_t n_replicas = p->cfg->replicas;
    struct supervisor s = {.own = *p,
                           .n = n_replicas == 1 ? p->n : 0,
                           .groups = {.fd = -1, .router_fd = -1},
                           .err = e};
    s.watched = clock_ms();
    notify_init(&s.notify, p->environ);
    refused_init(&s.refused, &cgroup_self);
    const uint32_t n_groups = p->cfg->models_folder ? p->cfg->max_loaded_models : 0;
    const uint32_t n_own = n_replicas == 1 ? 0 : n_replicas;
    sigset_t set;
    int rc = -1;

    s.plan = &s.own;
    s.n_children = CHILD_RANKS + 2 * (s.n + p->n * (n_groups + n_own)) + 1;
    s.children = calloc(s.n_children, sizeof(*s.children));
    s.ended = calloc(s.n_children, sizeof(*s.ended));
    s.fds = calloc(2 + 2 * s.n_children, sizeof(*s.fds));
    signals_of(p, &set);
    supervise_block(p);
    signal(SIGPIPE, SIG_IGN); /* an unread log must not stop the service */
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
        for (step_go(&s, DOWNLOAD); s.step != OVER;)
            turn(&s);
        rc = s.failed ? -1 : 0;
        *code = s.code;
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
