/* sweep.h - what killed shards leave behind. */
#ifndef LAUNCHER_SWEEP_H
#define LAUNCHER_SWEEP_H
#include "launcher/plan.h"

/* Removes the sockets and locks of the plan's ranks on this machine, and the file by which they
 * meet. None of them is alive; what another process serves by now stays. */
void sweep_shards(const struct plan *p);
#endif
