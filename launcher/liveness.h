/* liveness.h - which children are frozen: docs/decisions/launcher.md, Frozen children.
 *
 * A child is frozen when, for --heartbeat-timeout, it has sent no heartbeat (common/heartbeat.h),
 * has used no CPU time, and none of its threads was ready to run. A child that never sent a
 * heartbeat is frozen only while the kernel says that it is stopped. A child under a debugger is
 * not. A thread that waits for a device (state D) makes the timeout DEVICE_PATIENCE times longer.
 *
 * The time is counted in turns of the launcher, and a turn counts no more than it should have
 * taken: on a machine that is too busy or was suspended, the launcher is late as well, and the
 * timeout becomes longer. Main thread only. */
#ifndef LAUNCHER_LIVENESS_H
#define LAUNCHER_LIVENESS_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { LIVENESS_TURN_MS = 250, DEVICE_PATIENCE = 10 };

struct liveness { /* of one child */
    int fd;       /* eventfd of its heartbeats; -1: none, and never frozen */
    bool beats;   /* it has sent one */
    bool frozen;
    uint32_t quiet_ms; /* without a sign of life, as counted above */
    uint64_t cpu;      /* clock ticks used so far */
};

/* What the kernel says of a process. */
enum liveness_sign { SIGN_ALIVE, SIGN_DEVICE, SIGN_STILL, SIGN_STOPPED };
/* *cpu: its clock ticks before, and after. */
enum liveness_sign liveness_look(pid_t pid, uint64_t *cpu);

int liveness_open(struct liveness *l); /* 0, or -1 and errno */
void liveness_close(struct liveness *l);
/* `turn_ms` have passed since the last call. True once: it is frozen. timeout_ms 0: never. */
bool liveness_turn(struct liveness *l, pid_t pid, uint32_t turn_ms, uint32_t timeout_ms);
#endif
