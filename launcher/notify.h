/* notify.h - tells a service manager how the launch goes: the datagrams of sd_notify(3).
 *
 * NOTIFY_SOCKET names the socket: a path, or an abstract name behind `@`. WATCHDOG_USEC asks for
 * `WATCHDOG=1` within that time, where WATCHDOG_PID is absent or names this process. The launcher
 * sends from its own poll loop, so a manager kills it when the loop hangs. Under a manager SIGHUP
 * means reload, and never the end of a terminal. Children get none of
 * the three variables (plan.c). Without NOTIFY_SOCKET nothing is sent. Main thread only. */
#ifndef LAUNCHER_NOTIFY_H
#define LAUNCHER_NOTIFY_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
    int fd; /* -1: not wanted */
    struct sockaddr_un to;
    socklen_t to_len;
    int64_t every, due; /* ms; every 0: no watchdog */
    bool ready, stopping;
    const char *status; /* the last one sent */
};

/* `env` as in environ(7). An address that cannot be used is logged, and then nothing is sent. */
void notify_init(struct notify *n, char *const *env);
/* Once a turn: sends what has changed, and the watchdog's line when half of its time is over.
 * READY=1 is sent once, at the first `ready`; STOPPING=1 once. `status` is a static string. */
void notify_turn(struct notify *n, bool ready, bool stopping, const char *status, int64_t now_ms);
void notify_free(struct notify *n);
#endif
