/* env.h - private to flag.c and pages.c. */
#ifndef COMMON_FLAG_ENV_H
#define COMMON_FLAG_ENV_H
#include "common/flag/flag.h"

void flag_env_name(const struct flag *f, char out[64]); /* "": no environment name */
void flag_completion(const struct flag_program *p, FILE *out);
#endif
