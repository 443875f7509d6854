/* dry_run.h - --dry-run: prints the memory that this machine's ranks would need, as reported by the
 * programs that would run. */
#ifndef LAUNCHER_DRY_RUN_H
#define LAUNCHER_DRY_RUN_H
#include "launcher/plan/plan.h"
#include <stdio.h>

/* 0: all ranks fit; 1: one does not, as printed; -1: error in `e`. Waits for its child
 * processes. */
int dry_run(const struct plan *p, FILE *out, struct err *e);
#endif
