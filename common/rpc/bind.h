/* bind.h - listening addresses: Unix sockets that no other process can take over, and TCP.
 * Private to server.c. */
#ifndef COMMON_RPC_BIND_H
#define COMMON_RPC_BIND_H
#include "common/err.h"
#include "common/rpc/creds.h"
#include <grpc/grpc.h>

enum { RPC_UNIX_PATH_MAX = 107 }; /* sizeof(sun_path) - 1 */

struct rpc_bind {
    int lock_fd; /* holds <path>.lock; -1 for TCP */
    char lock_path[RPC_UNIX_PATH_MAX + 6];
    int port;
    struct rpc_server_certs certs; /* used by gRPC until the server is destroyed */
};

struct cluster; /* common/net/cluster.h */
/* Binds `address` on `g`, before which neither `b` nor `c` may be freed or moved; `c` NULL: no
 * credentials. ERR_VALIDATION for an invalid address, ERR_SYSTEM for one in use. */
int rpc_bind_open(struct rpc_bind *b, const char *address, const struct cluster *c, grpc_server *g,
                  struct err *e);
/* after the server was shut down (which removes the socket) */
void rpc_bind_close(struct rpc_bind *b);
#endif
