/* Random delays between threads: preloaded into a test or a server, it makes threads sleep for a
 * moment around sockets, polls and locks. Orders of events that a quiet machine has once in a
 * thousand runs occur within a few:
 *
 *     make jitter                          # the router's and the launcher's tests, many times
 *     make jitter T=rejoin N=100           # one of them
 *     make jitter-service SEED=7           # whole services: steps, drafts, swaps, restarts
 *     LD_PRELOAD=$PWD/build/tests/jitter.so JITTER_US=2000 ...   # anything else
 *
 * JITTER_US is the longest sleep in microseconds (8000 where it is not set). One call in eight
 * sleeps, mostly much shorter: the time is drawn from scales that halve eight times. With
 * JITTER_SEED the n-th thread of a process draws the same sleeps in every run; which thread is the
 * n-th still depends on the machine. Not with sanitizers, which must be loaded first.
 *
 * The idea is rr's chaos mode and Cuzz's: Burckhardt et al., "A randomized scheduler with
 * probabilistic guarantees of finding bugs", ASPLOS 2010. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t next_random(void)
{
    static _Thread_local uint64_t x;
    static _Atomic uint64_t threads;
    if (!x) {
        struct timespec t;
        const char *seed = getenv("JITTER_SEED");
        clock_gettime(CLOCK_MONOTONIC, &t);
        x = ((seed ? strtoull(seed, NULL, 0) + 1 : (uint64_t)t.tv_nsec) * 0x9e3779b97f4a7c15U ^
             ++threads << 32) |
            1;
    }
    x ^= x << 13; /* xorshift64: Marsaglia, 2003 */
    x ^= x >> 7;
    x ^= x << 17;
    return x >> 11;
}

static long longest_us(void)
{
    static long us = -1; /* racing threads find the same */
    if (us < 0) {
        const char *v = getenv("JITTER_US");
        us = v ? atol(v) : 8000;
    }
    return us;
}

static void jitter(void)
{
    int kept = errno;
    uint64_t r = next_random();
    uint64_t scale = (uint64_t)longest_us() >> (r / 8 % 8);
    if (r % 8 == 0 && scale > 0) {
        struct timespec t = {0, (long)(r / 64 % scale) * 1000};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
    }
    errno = kept;
}

/* Each call sleeps, or not, before and after the call that it stands for. */
#define AROUND(type, name, params, args)                                                           \
    type name params                                                                               \
    {                                                                                              \
        static type(*next) params;                                                                 \
        if (!next)                                                                                 \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                                             \
        jitter();                                                                                  \
        type rc = next args;                                                                       \
        jitter();                                                                                  \
        return rc;                                                                                 \
    }

AROUND(int, epoll_wait, (int ep, struct epoll_event *ev, int n, int ms), (ep, ev, n, ms))
AROUND(int, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms))
AROUND(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
AROUND(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
AROUND(ssize_t, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))
AROUND(ssize_t, recv, (int fd, void *p, size_t n, int flags), (fd, p, n, flags))
AROUND(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
AROUND(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags), (fd, a, n, flags))
AROUND(int, shutdown, (int fd, int how), (fd, how))
AROUND(int, close, (int fd), (fd))
AROUND(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n))
AROUND(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n))
AROUND(ssize_t, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
AROUND(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
AROUND(int, rename, (const char *from, const char *to), (from, to))
AROUND(int, pthread_mutex_lock, (pthread_mutex_t * m), (m))
AROUND(int, pthread_mutex_unlock, (pthread_mutex_t * m), (m))

/* Futexes: the backend's pool of threads, ranks that wait for each other, and absl's locks. */
long syscall(long number, ...)
{
    static long (*next)(long, ...);
    va_list v;
    long a[6];
    va_start(v, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(v, long);
    va_end(v);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_futex)
        jitter();
    long rc = next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_futex)
        jitter();
    return rc;
}
