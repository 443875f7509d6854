#include "launcher/child.h"
#include "common/clock.h"
#include "common/log.h"
#include "launcher/spawn.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int child_start(struct child *c, const char *name, const struct command *cmd, struct err *e)
{
    char path[4096];
    struct spawned s;
    *c = (struct child){.name = name, .fds = {-1, -1}, .started = clock_ms()};
    c->logs = calloc(2, sizeof(*c->logs));
    if (!c->logs)
        return err_nomem(e);
    spawn_find(cmd->program, path, sizeof(path));
    if (spawn(path, cmd->argv.v, cmd->env.v, cmd->keep_fds, &s, e))
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
    /* Not for ever: a child that writes without pause must not keep us from signals and others. */
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

void child_signal(struct child *c, int sig)
{
    if (c->alive)
        kill(-c->pid, sig);
}

void child_free(struct child *c)
{
    for (int i = 0; i < 2; i++)
        if (c->logs && c->fds[i] >= 0)
            close(c->fds[i]);
    free(c->logs);
    c->logs = NULL;
}

void child_cause(const struct child *c, char *out, size_t max)
{
    const char *words = relog_words(&c->last), *colon = *words ? ": " : "";
    if (WIFSIGNALED(c->status)) {
        int sig = WTERMSIG(c->status);
        snprintf(out, max, "was killed by signal %d (%s%s)%s%s", sig, strsignal(sig),
                 sig == SIGKILL ? "; the kernel does this when memory runs out" : "", colon, words);
    } else {
        snprintf(out, max, "exited with code %d%s%s", WEXITSTATUS(c->status), colon, words);
    }
}
