/* foreign.h - options of vLLM, SGLang and llama-server, with the options here that do the same.
 *
 * The rows only word errors: no such option is accepted. docs/how-to/migrate.md has the same as a
 * table. Options whose names are also ours have no row. */
#ifndef LAUNCHER_FOREIGN_H
#define LAUNCHER_FOREIGN_H
#include "common/flag/flag.h"

extern const struct flag_foreign foreign_options[]; /* ends with name == NULL */
#endif
