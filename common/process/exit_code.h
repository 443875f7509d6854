/* exit_code.h - exit codes of the programs.
 *
 * A command line that cannot be read is FLAGS_USAGE (2), as of TGI's programs. A failure that a new
 * start would meet again has its code of sysexits.h, so that a service manager need not try it; any
 * other is 1. A program that ends because of a child has the child's. */
#ifndef COMMON_EXIT_CODE_H
#define COMMON_EXIT_CODE_H
#include "common/err.h"
#include <sysexits.h>

/* EX_NOINPUT (66): a file or folder is not there. EX_NOPERM (77): it may not be read. EX_CONFIG
 * (78): what was asked for cannot be, e.g. it does not fit into memory. Else 1. */
int exit_code(const struct err *e);
/* Of a child's status, as wait(2) gives it: its exit code, or 128 + the signal that ended it, as
 * shells say. */
int exit_code_of_child(int status);
#endif
