/* foreign.h - options of vLLM, SGLang and llama-server, and the options here that do the same.
 *
 * An option with the same meaning is taken, one without effect is accepted, and all others are
 * refused with advice. docs/how-to/migrate.md has the same as a table. Options whose names are also
 * ours have no row. */
#ifndef LAUNCHER_FOREIGN_H
#define LAUNCHER_FOREIGN_H
#include "common/flag/flag.h"

extern const struct flag_foreign foreign_options[]; /* ends with name == NULL */

/* Logs what became of each option of another server on a command line that was parsed. Warns of the
 * variables of other servers (LLAMA_ARG_*, VLLM_API_KEY), which are not read. */
void foreign_log(int argc, char **argv, char *const *envp);
#endif
