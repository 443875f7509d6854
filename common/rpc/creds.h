/* creds.h - gRPC credentials for an address: insecure for Unix sockets and without
 * certificates, otherwise mutual TLS (grpc_ssl_*). */
#ifndef COMMON_RPC_CREDS_H
#define COMMON_RPC_CREDS_H
#include "common/cluster.h"
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

/* Released by the caller. `c` may be NULL: insecure. */
grpc_channel_credentials *rpc_channel_creds(const struct cluster *c, const char *address);
grpc_server_credentials *rpc_server_creds(const struct cluster *c, const char *address);

bool rpc_is_unix(const char *address); /* "unix:...", "/path", "./path" */
/* True if the call came through a Unix socket. */
bool rpc_from_unix(grpc_call *call);
/* True if the caller's certificate is for the cluster's name. The handshake has already verified
 * its CA. */
bool rpc_from_member(grpc_call *call, const struct cluster *c);
#endif
