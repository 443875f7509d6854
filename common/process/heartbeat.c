#include "common/process/heartbeat.h"
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { STACK_BYTES = 128 * 1024 };

static void *beat(void *arg)
{
    const struct timespec pause = {HEARTBEAT_MS / 1000, HEARTBEAT_MS % 1000 * 1000000L};
    const int fd = (int)(intptr_t)arg;
    for (;;) {
        (void)eventfd_write(fd, 1); /* full: the parent has not read it for very long */
        nanosleep(&pause, NULL);
    }
    return NULL;
}

int heartbeat_start(uint32_t fd, struct err *e)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    if (fd == 0)
        return 0;
    if (fd > INT_MAX || fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)
        return err_sys(e, "--heartbeat-fd %u", fd);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int rc = pthread_create(&thread, &attr, beat, (void *)(intptr_t)fd);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? err_set(e, ERR_SYSTEM, "cannot start the heartbeat's thread") : 0;
}
