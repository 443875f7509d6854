/* target.h - the address of a server, in the forms that the programs take. */
#ifndef COMMON_RPC_TARGET_H
#define COMMON_RPC_TARGET_H
#include <stddef.h>

/* "unix:///path", "unix:path", "/path", "tcp://host:port" or "host:port" as gRPC reads it: the end
 * of `target`, or written to buf[cap]. */
const char *rpc_target(const char *target, char *buf, size_t cap);
#endif
