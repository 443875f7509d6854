#include "launcher/notify.h"
#include "common/log/log.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AGAIN_MS = 250 }; /* after a message that could not be sent */

static const char *value(char *const *env, const char *name)
{
    const size_t n = strlen(name);
    for (; env && *env; env++)
        if (!strncmp(*env, name, n) && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

static bool address(struct notify *n, const char *name)
{
    const size_t len = strlen(name);
    if ((*name != '/' && *name != '@') || len < 2 || len >= sizeof(n->to.sun_path))
        return false;
    n->to.sun_family = AF_UNIX;
    memcpy(n->to.sun_path, name, len);
    if (*name == '@')
        n->to.sun_path[0] = 0;
    /* the length delimits an abstract name; a path includes its NUL */
    n->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (*name == '/'));
    return true;
}

static int64_t watchdog_ms(char *const *env)
{
    const char *usec = value(env, "WATCHDOG_USEC"), *pid = value(env, "WATCHDOG_PID");
    if (!usec || (pid && strtol(pid, NULL, 10) != (long)getpid()))
        return 0;
    const long long us = strtoll(usec, NULL, 10);
    return us > 0 ? us / 2000 : 0;
}

void notify_init(struct notify *n, char *const *env)
{
    const char *name = value(env, "NOTIFY_SOCKET");
    *n = (struct notify){.fd = -1};
    if (!name || !*name)
        return;
    if (!address(n, name))
        LOG(LOG_WARN, "NOTIFY_SOCKET is not the address of a Unix socket", LOGS("address", name));
    else if ((n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
        LOG(LOG_WARN, "cannot notify the service manager", LOGS("error", strerror(errno)));
    else
        n->every = watchdog_ms(env);
}

/* False: not delivered; the next turn repeats it. */
static bool send_text(struct notify *n, const char *text)
{
    return sendto(n->fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&n->to,
                  n->to_len) >= 0;
}

void notify_turn(struct notify *n, bool ready, bool stopping, const char *status, int64_t now_ms)
{
    char text[160];
    if (n->fd < 0)
        return;
    const bool first = ready && !n->ready && !stopping, last = stopping && !n->stopping;
    if (first || last || n->status != status) {
        snprintf(text, sizeof(text), "%s%sSTATUS=%s", first ? "READY=1\n" : "",
                 last ? "STOPPING=1\n" : "", status);
        if (send_text(n, text)) {
            n->ready |= first;
            n->stopping |= last;
            n->status = status;
        }
    }
    if (n->every && now_ms >= n->due) {
        const bool sent = send_text(n, "WATCHDOG=1");
        n->due = now_ms + (sent || n->every < AGAIN_MS ? n->every : AGAIN_MS);
    }
}

void notify_free(struct notify *n)
{
    if (n->fd >= 0)
        close(n->fd);
    n->fd = -1;
}
