#include "launcher/process/spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

void spawn_find(const char *program, char *path, size_t max)
{
    char self[4096];
    const char *dir = getenv("LAUNCHER_BIN_DIR");
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash = n > 0 ? memrchr(self, '/', (size_t)n) : NULL;
    if (strchr(program, '/')) {
        snprintf(path, max, "%s", program);
        return;
    }
    if (dir && *dir) {
        snprintf(path, max, "%s/%s", dir, program);
        return;
    }
    if (slash) {
        *slash = 0;
        int len = snprintf(path, max, "%s/%s", self, program);
        if (len > 0 && (size_t)len < max && access(path, X_OK) == 0)
            return;
    }
    snprintf(path, max, "%s", program);
}

/* After fork: only async-signal-safe calls. Ends in exec, or sends errno through `fail`. */
static void become(const char *path, char *const *argv, char *const *env, pid_t parent,
                   const int *out, const int *err, int fail, const int *keep,
                   const cpu_set_t *cores)
{
    sigset_t none;
    int null = open("/dev/null", O_RDONLY);
    sigemptyset(&none);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(127); /* the launcher died between fork and prctl: no death signal would follow */
    setpgid(0, 0);
    /* What the terminal sent to the launcher's group before that is the launcher's to act upon.
     * Ignoring a signal drops one that is pending. */
    for (const int *sig = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, 0}; *sig; sig++)
        signal(*sig, signal(*sig, SIG_IGN));
    if (cores) /* fails if cores went offline meanwhile; the child still starts */
        sched_setaffinity(0, sizeof(*cores), cores);
    for (int i = 0; i < 3; i++)
        if (keep[i])
            fcntl(keep[i], F_SETFD, 0);
    /* until the program ignores them itself (common/process/process.h) */
    for (const int *sig = (const int[]){SIGPIPE, SIGUSR1, SIGUSR2, 0}; *sig; sig++)
        signal(*sig, SIG_IGN);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(out[1], STDOUT_FILENO) >= 0 &&
        dup2(err[1], STDERR_FILENO) >= 0)
        execvpe(path, argv, env);
    int why = errno;
    if (write(fail, &why, sizeof(why)) < 0) {
        /* the launcher then sees exit code 127 */
    }
    _exit(127);
}

static void close_pair(int p[2])
{
    for (int i = 0; i < 2; i++)
        if (p[i] >= 0)
            close(p[i]);
}

int spawn(const char *path, char *const *argv, char *const *env, const int keep[3],
          const cpu_set_t *cores, struct spawned *s, struct err *e)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, fail[2] = {-1, -1}, why = 0;
    pid_t parent = getpid();

    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC) || pipe2(fail, O_CLOEXEC)) {
        err_sys(e, "pipe");
        goto undo;
    }
    s->pid = fork();
    if (s->pid < 0) {
        err_sys(e, "fork");
        goto undo;
    }
    if (s->pid == 0)
        become(path, argv, env, parent, out, err, fail[1], keep, cores);
    close(fail[1]), fail[1] = -1;
    /* end of file: exec closed it */
    if (read(fail[0], &why, sizeof(why)) == (ssize_t)sizeof(why)) {
        errno = why;
        err_sys(e, "cannot run %s", path);
        goto undo; /* the child is reaped like all others */
    }
    close(fail[0]), close(out[1]), close(err[1]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    s->out = out[0];
    s->err = err[0];
    return 0;
undo:
    close_pair(out);
    close_pair(err);
    close_pair(fail);
    return -1;
}
