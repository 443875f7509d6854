/* health.h - ask a shard whether it is ready: one Health call of generate.v3.
 *
 * gRPC starts threads, and a process that forks should have none: so this runs in a process of its
 * own, `launcher health ADDRESS`, which the supervisor starts beside each shard and whose end it
 * waits for like any other child's. */
#ifndef LAUNCHER_HEALTH_H
#define LAUNCHER_HEALTH_H
#include "common/err.h"
#include <stdint.h>

/* Wait until the server at `address` ("unix:/path", "host:port") answers Health. timeout_ms 0: for
 * ever. ERR_UNHEALTHY with gRPC's status and words otherwise. */
int health_wait(const char *address, int64_t timeout_ms, struct err *e);
#endif
