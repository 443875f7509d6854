/* sweep.h - cleans up after killed shards. */
#ifndef LAUNCHER_SWEEP_H
#define LAUNCHER_SWEEP_H
#include "launcher/plan/plan.h"

/* Removes the sockets and lock files of the plan's ranks on this machine, and their rendezvous
 * file. The ranks must have ended; files in use by another process stay. */
void sweep_shards(const struct plan *p);
#endif
