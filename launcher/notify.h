/* notify.h - reports the state of the launch to a service manager: the datagrams of sd_notify(3).
 *
 * NOTIFY_SOCKET is the socket's path, or an abstract name after `@`. WATCHDOG_USEC requests
 * `WATCHDOG=1` within that time, if WATCHDOG_PID is absent or names this process. The launcher
 * sends it from its poll loop, so the manager kills it if the loop hangs. Under a manager SIGHUP
 * means reload, not the end of a terminal. Children inherit none of the three variables (plan.c).
 * Without NOTIFY_SOCKET nothing is sent. Main thread only. */
#ifndef LAUNCHER_NOTIFY_H
#define LAUNCHER_NOTIFY_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
    int fd; /* -1: no service manager */
    struct sockaddr_un to;
    socklen_t to_len;
    int64_t every, due; /* ms; every 0: no watchdog. due: the next message or attempt */
    bool ready, stopping;
    const char *status; /* the last status sent */
};

/* `env` as environ(7). An invalid address is logged, and nothing is sent. */
void notify_init(struct notify *n, char *const *env);
/* Call once per turn: sends changes, and the watchdog message after half of its time. READY=1 is
 * sent once, at the first `ready`; STOPPING=1 once. `status` is a static string. */
void notify_turn(struct notify *n, bool ready, bool stopping, const char *status, int64_t now_ms);
void notify_free(struct notify *n);
#endif
