/* heartbeat.h - heartbeats of a child process to its parent.
 *
 * The parent passes an eventfd; a thread adds 1 to it every HEARTBEAT_MS and does nothing else. So
 * a process that computes, loads or waits still sends heartbeats; a stopped one (SIGSTOP, a frozen
 * cgroup) does not. launcher/process/liveness.h reads them. */
#ifndef COMMON_HEARTBEAT_H
#define COMMON_HEARTBEAT_H
#include "common/err.h"
#include <stdint.h>

enum { HEARTBEAT_MS = 1000 };

/* Starts the thread, once per process; it blocks all signals and never ends. `fd`: a non-blocking
 * eventfd, which is made close-on-exec; 0: no thread is started. ERR_SYSTEM. */
int heartbeat_start(uint32_t fd, struct err *e);
#endif
