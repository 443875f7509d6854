/* health.h - waits until a shard is ready, with Health calls of generate.v3.
 *
 * gRPC starts threads, and a process that forks should have none. So this runs as a separate
 * process, `launcher health ADDRESS`. The supervisor starts one beside each shard and waits for its
 * exit. */
#ifndef LAUNCHER_HEALTH_H
#define LAUNCHER_HEALTH_H
#include "common/err.h"
#include <stdint.h>

/* Waits until the server at `address` (as of common/rpc/target.h) answers Health; one that ends
 * meanwhile is waited for as well. timeout_ms 0: no limit. ERR_UNHEALTHY with gRPC's status and
 * message otherwise. */
int health_wait(const char *address, int64_t timeout_ms, struct err *e);
#endif
