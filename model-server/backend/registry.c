/* registry.c - which backends there are. */
#include "model-server/backend/backend.h"
#include <string.h>

const char *dtype_name(enum dtype t)
{
    static const char *const names[DT_N] = {"float32", "float16", "bfloat16"};
    return (unsigned)t < DT_N ? names[t] : "unknown";
}

const char *quant_name(enum quant q)
{
    static const char *const names[QUANT_N] = {"none", "int8", "w8a8", "int4"};
    return (unsigned)q < QUANT_N ? names[q] : "unknown";
}

const struct backend_ops *backend_find(const char *name, struct err *e)
{
    if (!strcmp(name, "cpu") || !strcmp(name, "auto"))
        return &backend_cpu;
    if (!strcmp(name, "cuda"))
        err_set(e, ERR_VALIDATION,
                "backend cuda: this build has no CUDA plugin (it is built where nvcc is found)");
    else
        err_set(e, ERR_VALIDATION, "backend %s: unknown; there are cpu, cuda and auto", name);
    return NULL;
}
