/* liveness.h - detects frozen children: docs/decisions/launcher.md, Frozen children.
 *
 * A child is frozen if for --heartbeat-timeout it has sent no heartbeat
 * (common/process/heartbeat.h), used no CPU time, and had no runnable thread. A child that never
 * sent a heartbeat is frozen only while the kernel reports it as stopped. A child under a debugger
 * is never frozen. A thread that waits for a device (state D) makes the timeout DEVICE_PATIENCE
 * times longer. For a child whose stop the kernel has reported to its parent (SIGSTOP; wait(2),
 * WUNTRACED) the timeout is STOPPED_MS, from the first turn after that report on: the launcher may
 * have been stopped with it.
 *
 * Time is counted in turns of the launcher, and each turn counts at most its nominal duration. If
 * the machine is overloaded or was suspended, the launcher is late as well, and the timeout becomes
 * longer. Main thread only. */
#ifndef LAUNCHER_LIVENESS_H
#define LAUNCHER_LIVENESS_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* LIVENESS_REST_MS: interval between checks while every child shows life; else
 * LIVENESS_TURN_MS. */
enum { LIVENESS_TURN_MS = 250, LIVENESS_REST_MS = 1000, STOPPED_MS = 500, DEVICE_PATIENCE = 10 };

struct liveness { /* of one child */
    int fd;       /* eventfd of its heartbeats; -1: none, never frozen */
    bool beats;   /* it has sent a heartbeat */
    bool stopped; /* wait(2) has reported its stop, and not yet that it was continued */
    bool looked;  /* liveness_turn() was called since that report */
    bool frozen;
    uint32_t quiet_ms; /* ms without a sign of life, counted as above */
    uint64_t cpu;      /* clock ticks used so far */
};

int liveness_open(struct liveness *l); /* 0, or -1 with errno */
void liveness_close(struct liveness *l);
/* wait(2) has reported that it was stopped, or continued. */
void liveness_stopped(struct liveness *l, bool stopped);
/* `turn_ms`: ms since the last call. True once, when it becomes frozen. timeout_ms 0: never. */
bool liveness_turn(struct liveness *l, pid_t pid, uint32_t turn_ms, uint32_t timeout_ms);
/* It is no longer frozen, for a reason that the kernel will report: it was continued. */
void liveness_again(struct liveness *l);
/* The next look should come soon: the last one found no sign of life. */
bool liveness_doubtful(const struct liveness *l);
#endif
