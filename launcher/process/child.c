#include "launcher/process/child.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "launcher/process/spawn.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* `env` plus the number of the child's eventfd; caller frees the array and its last string. */
static char **with_heartbeat(char *const *env, int fd)
{
    size_t n = 0;
    while (env && env[n])
        n++;
    char **all = calloc(n + 2, sizeof(*all));
    if (!all)
        return NULL;
    if (n)
        memcpy(all, env, n * sizeof(*all));
    if (asprintf(&all[n], "HEARTBEAT_FD=%d", fd) >= 0)
        return all;
    free(all);
    return NULL;
}

static int run(const struct command *cmd, int heartbeat_fd, struct spawned *s, struct err *e)
{
    char path[4096];
    char **env = with_heartbeat(cmd->env.v, heartbeat_fd), **last = env;
    if (!env)
        return err_nomem(e);
    while (last[1])
        last++;
    spawn_find(cmd->program, path, sizeof(path));
    int rc =
        spawn(path, cmd->argv.v, env,
              (const int[]){cmd->keep_fds[0], cmd->keep_fds[1], heartbeat_fd}, cmd->cores, s, e);
    free(*last);
    free(env);
    return rc;
}

int child_start(struct child *c, const char *name, const struct command *cmd, struct err *e)
{
    struct spawned s = {0};
    *c = (struct child){.name = name, .fds = {-1, -1}, .started = clock_ms()};
    c->logs = calloc(2, sizeof(*c->logs));
    if (!c->logs)
        return err_nomem(e);
    if (liveness_open(&c->liveness))
        return err_sys(e, "eventfd");
    if (run(cmd, c->liveness.fd, &s, e))
        return -1;
    c->pid = s.pid;
    c->alive = true;
    c->fds[0] = s.out;
    c->fds[1] = s.err;
    return 0;
}

static void pass_on(void *arg, const char *line, size_t n)
{
    struct child *c = arg;
    const size_t name = strlen(c->name); /* "router: it failed": the target says who */
    if (n > name + 2 && !memcmp(line, c->name, name) && !memcmp(line + name, ": ", 2)) {
        line += name + 2;
        n -= name + 2;
    }
    relog_note(&c->last, line, n);
    log_relay(c->name, line, n);
}

static void close_pipe(struct child *c, int which)
{
    relog_end(&c->logs[which], pass_on, c);
    close(c->fds[which]);
    c->fds[which] = -1;
}

void child_read(struct child *c, int which)
{
    char bytes[16384];
    /* Bounded: a child that writes constantly must not delay signals and other children. */
    for (int turn = 0; turn < 16 && c->fds[which] >= 0; turn++) {
        ssize_t n = read(c->fds[which], bytes, sizeof(bytes));
        if (n > 0)
            relog_feed(&c->logs[which], bytes, (size_t)n, pass_on, c);
        else if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        else
            close_pipe(c, which);
    }
}

void child_ended(struct child *c, int status)
{
    c->alive = false;
    c->status = status;
    for (int i = 0; i < 2; i++) {
        if (c->fds[i] >= 0)
            child_read(c, i);
        if (c->fds[i] >= 0)
            close_pipe(c, i);
    }
}

void child_stopped(struct child *c, bool stopped)
{
    liveness_stopped(&c->liveness, stopped);
    LOG(LOG_WARN, stopped ? "stopped by a signal" : "continued", LOGS("name", c->name),
        LOGI("pid", c->pid));
}

void child_signal(struct child *c, int sig)
{
    if (!c->alive)
        return;
    c->killed |= sig == SIGKILL;
    kill(-c->pid, sig);
}

bool child_probe_again(const struct child *c, uint32_t *n)
{
    char cause[480];
    if (!WIFSIGNALED(c->status) || *n >= CHILD_PROBES)
        return false;
    ++*n;
    child_cause(c, cause, sizeof(cause));
    LOG(LOG_WARN, "A health probe is started again", LOGS("probe", c->name), LOGS("why", cause));
    return true;
}

void child_watch(struct child *c, uint32_t turn_ms, uint32_t timeout_ms)
{
    if (!c->alive || !liveness_turn(&c->liveness, c->pid, turn_ms, timeout_ms))
        return;
    if (c->vital && c->liveness.stopped) {
        LOG(LOG_WARN, "continuing a stopped process, because the service ends with it",
            LOGS("name", c->name), LOGI("pid", c->pid));
        liveness_again(&c->liveness);
        child_signal(c, SIGCONT);
        return;
    }
    LOG(LOG_ERROR, "no heartbeat and no CPU time used: killing a frozen process",
        LOGS("name", c->name), LOGI("pid", c->pid), LOGI("ms", c->liveness.quiet_ms));
    child_signal(c, SIGKILL);
}

void child_free(struct child *c)
{
    for (int i = 0; i < 2; i++)
        if (c->logs && c->fds[i] >= 0)
            close(c->fds[i]);
    if (c->logs)
        liveness_close(&c->liveness);
    free(c->logs);
    c->logs = NULL;
}

void child_cause(const struct child *c, char *out, size_t max)
{
    const char *words = relog_words(&c->last), *colon = *words ? ": " : "";
    if (c->liveness.frozen && WIFSIGNALED(c->status)) {
        snprintf(out, max, "was frozen (no heartbeat) and was killed%s%s", colon, words);
    } else if (WIFSIGNALED(c->status)) {
        int sig = WTERMSIG(c->status);
        const char *why = c->no_memory     ? "; by the kernel, because memory ran out"
                          : sig == SIGKILL ? "; the kernel does this when memory runs out"
                                           : "";
        snprintf(out, max, "was killed by signal %d (%s%s)%s%s", sig, strsignal(sig), why, colon,
                 words);
    } else {
        snprintf(out, max, "exited with code %d%s%s", WEXITSTATUS(c->status), colon, words);
    }
}
