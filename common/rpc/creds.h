/* creds.h - gRPC credentials for an address: insecure for Unix sockets and without
 * certificates, otherwise mutual TLS (grpc_ssl_*). */
#ifndef COMMON_RPC_CREDS_H
#define COMMON_RPC_CREDS_H
#include "common/net/cluster.h"
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

/* A server's certificates: each handshake has those of cluster_certs_now(). */
struct rpc_server_certs {
    const struct cluster *cluster;
    uint64_t version; /* of the certificates that gRPC has */
};

/* Released by the caller. `c` may be NULL: insecure. A channel keeps its certificates: connections
 * after a renewal need another one. */
grpc_channel_credentials *rpc_channel_creds(const struct cluster *c, const char *address);
/* `certs` and `c` must outlive the server. */
grpc_server_credentials *rpc_server_creds(const struct cluster *c, const char *address,
                                          struct rpc_server_certs *certs);

bool rpc_is_unix(const char *address); /* "unix:...", "/path", "./path" */
/* True if the call came through a Unix socket. */
bool rpc_from_unix(grpc_call *call);
/* True if the caller's certificate is for the cluster's name. The handshake has already verified
 * its CA. */
bool rpc_from_member(grpc_call *call, const struct cluster *c);
#endif
