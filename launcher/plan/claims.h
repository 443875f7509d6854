/* claims.h - the addresses of one launch, which no second launcher may use from its start on. The
 * router listens and the shards bind much later. Without a claim, of two launchers that start
 * together one could get the port and the other a socket, and both would end. */
#ifndef LAUNCHER_CLAIMS_H
#define LAUNCHER_CLAIMS_H
#include "common/net/listen_address.h"
#include "launcher/plan/plan.h"

struct claims {
    int sockets_fd, port_fd[LISTEN_MOST]; /* -1: none */
    char *path;                           /* of the lock for the sockets */
};
/* Claims the path of the sockets and then, on the router's machine, the port: so of launchers that
 * share either, one gets both. Then checks that no other program uses them. Waits up to 3 seconds
 * for a launcher that is about to end. `c` is to be released in any case. ERR_SYSTEM: in use. */
int claims_take(struct claims *c, const struct plan *p, struct err *e);
void claims_release(struct claims *c);
#endif
