/* target.h - the address of a server, in the forms that the programs take. */
#ifndef COMMON_RPC_TARGET_H
#define COMMON_RPC_TARGET_H
#include <stddef.h>
#include <stdint.h>

/* "unix:///path", "unix:path", "/path", "tcp://host:port" or "host:port" as gRPC reads it: the end
 * of `target`, or written to buf[cap]. */
const char *rpc_target(const char *target, char *buf, size_t cap);

/* Waits until the file of a Unix socket exists, at most timeout_ms; returns at once for any other
 * target. It looks every few milliseconds, where a channel of gRPC tries every 100 at most. The
 * file may be that of an earlier process: a connection may still be refused. */
void rpc_target_await(const char *target, int64_t timeout_ms);
#endif
