/* rpc_bind.h - where a server listens: Unix sockets that cannot be taken over, and TCP. Private to
 * rpc_server.c. */
#ifndef COMMON_RPC_BIND_H
#define COMMON_RPC_BIND_H
#include "common/err.h"
#include <grpc/grpc.h>

enum { RPC_UNIX_PATH_MAX = 107 }; /* sizeof(sun_path) - 1 */

struct rpc_bind {
    int lock_fd; /* holds <path>.lock; -1 for TCP */
    char lock_path[RPC_UNIX_PATH_MAX + 6];
    int port;
};

/* ERR_VALIDATION for an address that cannot be one, ERR_SYSTEM for one that is in use. */
struct cluster; /* common/cluster.h; NULL: none */
int rpc_bind_open(struct rpc_bind *b, const char *address, const struct cluster *c, grpc_server *g,
                  struct err *e);
void rpc_bind_close(
    struct rpc_bind *b); /* after the server was shut down (which removes the socket) */
#endif
