/* heartbeat.h - a process shows its parent that it is not frozen.
 *
 * The parent hands down an eventfd; a thread adds 1 to it every HEARTBEAT_MS. The thread does
 * nothing else, so a process that computes, loads or waits keeps its heartbeat; one that is stopped
 * (SIGSTOP, a frozen control group) loses it. launcher/liveness.h is the reader. */
#ifndef COMMON_HEARTBEAT_H
#define COMMON_HEARTBEAT_H
#include "common/err.h"
#include <stdint.h>

enum { HEARTBEAT_MS = 250 };

/* Starts the thread, once, for as long as the process lives; all signals are blocked in it. `fd` is
 * a non-blocking eventfd, which this closes on exec; 0: nothing is started. ERR_SYSTEM. */
int heartbeat_start(uint32_t fd, struct err *e);
#endif
