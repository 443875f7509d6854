/* cuda_plugin.h - the CUDA plugin that a program of golden data tests: BACKEND_CUDA, else the
 * stand-in's CUDA_DOUBLE. */
#ifndef TESTS_GOLDEN_CUDA_PLUGIN_H
#define TESTS_GOLDEN_CUDA_PLUGIN_H
#include "model-server/backend/plugin.h"
#include "tests/unit/test.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline const char *cuda_plugin_path(void)
{
    const char *given = getenv("BACKEND_CUDA");
    return given ? given : getenv("CUDA_DOUBLE");
}

/* NULL: the program ends with *rc. It is 0 if no plugin is given, and `cases` are skipped. */
static inline const struct backend_ops *cuda_plugin(int cases, int *rc)
{
    struct err e = ERR_INIT;
    *rc = 0;
    if (!cuda_plugin_path()) {
        printf("skipped: %d cases (no GPU plugin is given, and the double runs on x86-64 only)\n",
               cases);
        return NULL;
    }
    const struct backend_plugin *p = backend_plugin_load(cuda_plugin_path(), &e);
    if (p && !p->available(&e))
        return p->ops;
    fprintf(stderr, "%s\n", e.msg);
    *rc = 1;
    return NULL;
}
#endif
