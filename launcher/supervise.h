/* supervise.h - runs one launch from start to end.
 *
 *   DOWNLOAD ──▶ LOADING ──▶ SERVING ──▶ STOP_ROUTER ──▶ STOP_SHARDS ──▶ OVER
 *        └───────────┴──────────── a child is lost, or a signal ────────────▲
 *
 * One thread, one poll loop: signals by signalfd, output by pipes, the rest by deadlines. Each step
 * is a table row: how it begins, what a lost child means, what happens at its deadline. The router
 * starts before the shards, and its port answers probes while they load. A shard is ready when it
 * has answered a Health call, not when its socket file exists. If one rank of a group ends, all are
 * stopped; after they were ready once, they are restarted a limited number of times (restarts.h). A
 * frozen child is killed (liveness.h), and then handled like any lost child. From the first signal
 * to the end it takes at most --graceful-termination-timeout. */
#ifndef LAUNCHER_SUPERVISE_H
#define LAUNCHER_SUPERVISE_H
#include "launcher/plan/plan.h"

/* Blocks the signals that end a launch, until supervise() reads them. To be called before anything
 * is created that the end of the process would leave behind. */
void supervise_block(const struct plan *p);
/* Runs until a signal or a failure, and until no child is left. 0: stopped by a signal without
 * losing a request. -1: `e` names the child and the cause, such as "Shard failed: rank 1 was killed
 * by signal 11 (Segmentation fault)"; *code is that child's exit code (common/process/exit_code.h),
 * 0 if no child has ended. */
int supervise(const struct plan *p, int *code, struct err *e);
#endif
