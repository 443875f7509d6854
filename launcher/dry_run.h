/* dry_run.h - --dry-run: what this machine's part of a launch would take, asked of the programs
 * that would run, and printed. */
#ifndef LAUNCHER_DRY_RUN_H
#define LAUNCHER_DRY_RUN_H
#include "launcher/plan.h"
#include <stdio.h>

/* 0: all ranks fit; 1: one does not, as was printed; -1: `e`. Waits for its children. */
int dry_run(const struct plan *p, FILE *out, struct err *e);
#endif
