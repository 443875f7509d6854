/* supervise.h - the life of one launch.
 *
 *   DOWNLOAD ──▶ LOADING ──▶ SERVING ──▶ STOP_ROUTER ──▶ STOP_SHARDS ──▶ OVER
 *        └───────────┴──────────── a child is lost, or a signal came ──────▲
 *
 * One thread, one poll loop: signals by signalfd, output by pipes, the rest by deadlines. A step is
 * a row: what starts it, what a lost child means in it, when its time is up. The router is started
 * before the shards: its port answers probes while they load. A shard is ready when it has answered
 * a Health call, not when its socket file exists. The ranks of a group live and die together; once
 * all were ready they are started again, a few times (restarts.h). A frozen child is killed
 * (liveness.h), and then is lost like any other. From the first signal to the end it takes
 * --graceful-termination-timeout at most. */
#ifndef LAUNCHER_SUPERVISE_H
#define LAUNCHER_SUPERVISE_H
#include "launcher/plan.h"

/* Run until a signal or a failure, and until no child is left. 0: stopped by a signal, and no
 * request was lost by that. -1: `e` names the child and why, e.g. "Shard failed: rank 1 was killed
 * by signal 11 (Segmentation fault)". */
int supervise(const struct plan *p, struct err *e);
#endif
