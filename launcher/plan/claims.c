#include "launcher/plan/claims.h"
#include "common/file/file_lock.h"
#include "launcher/plan/machine.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const struct claims nothing = {.sockets_fd = -1, .port_fd = {-1, -1}};

/* Launchers with other ranks of one group may share the prefix. */
static int claim_sockets(struct claims *c, const char *prefix, uint32_t first, struct err *e)
{
    int waited = 0;
    if (asprintf(&c->path, "%s-%u.launch.lock", prefix, first) < 0)
        return c->path = NULL, err_nomem(e);
    do
        c->sockets_fd = file_lock_take(c->path, e);
    while (c->sockets_fd == FILE_LOCK_TAKEN && machine_wait_a_moment(&waited));
    if (c->sockets_fd == -1)
        err_wrap(e, "the sockets of the shards need a writable folder (--shard-uds-path)");
    if (c->sockets_fd == FILE_LOCK_TAKEN)
        err_set(e, ERR_SYSTEM,
                "%s is in use: another launcher runs with the same port or --shard-uds-path",
                prefix);
    return c->sockets_fd < 0 ? -1 : 0;
}

/* By a socket in the abstract namespace: like the port it belongs to the network namespace, and it
 * leaves no file. Where there is no such namespace, only listening decides. */
static int claim_port(int *fd, const char *address, uint32_t port, struct err *e)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int n =
        snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "launcher-port-%s-%u", address, port);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    int waited = 0, rc = 0;
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || !port || (size_t)n >= sizeof(at.sun_path) - 1)
        return 0;
    while ((rc = bind(*fd, (struct sockaddr *)&at, size)) != 0 && errno == EADDRINUSE &&
           machine_wait_a_moment(&waited)) {
    }
    return rc && errno == EADDRINUSE ? err_sys(e, "cannot listen on %s port %u", address, port) : 0;
}

int claims_take(struct claims *c, const struct plan *p, struct err *e)
{
    struct listen_addresses a = {.n = 0};
    *c = nothing;
    if (p->first == 0) /* the router runs on machine 0 */
        listen_addresses(flags_bind_address(p->cfg->hostname), &a);
    if (claim_sockets(c, p->uds_path, p->first, e) != 0)
        return -1;
    for (uint32_t i = 0; i < a.n; i++)
        if (claim_port(&c->port_fd[i], a.at[i], p->cfg->port, e))
            return -1;
    for (uint32_t r = 0; r < p->n; r++)
        if (machine_socket_free(plan_socket(p, p->first + r), e))
            return -1;
    for (uint32_t i = 0; i < a.n; i++)
        if (machine_port_free(a.at[i], p->cfg->port, e))
            return -1;
    return 0;
}

void claims_release(struct claims *c)
{
    for (int i = 0; i < LISTEN_MOST; i++)
        if (c->port_fd[i] >= 0)
            close(c->port_fd[i]);
    file_lock_release(c->sockets_fd, c->path);
    free(c->path);
    *c = nothing;
}
