/* registry.c - the list of backends: the CPU's is built in, the others are plugins. */
#include "model-server/backend/plugin.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *dtype_name(enum dtype t)
{
    static const char *const names[DT_N] = {"float32", "float16", "bfloat16"};
    return (unsigned)t < DT_N ? names[t] : "unknown";
}

const char *quant_name(enum quant q)
{
    static const char *const names[] = {"none", "int8", "w8a8", "int4", "fp8"};
    return (unsigned)q < sizeof(names) / sizeof(names[0]) ? names[q] : "unknown";
}

const struct format *quant_format(enum quant q)
{
    switch (q) {
    case QUANT_INT8:
    case QUANT_W8A8:
        return &formats[FORMAT_INT8];
    case QUANT_INT4:
        return &formats[FORMAT_INT4];
    case QUANT_FP8:
        return &formats[FORMAT_FP8];
    case QUANT_NONE:
    case QUANT_N:
        break;
    }
    return NULL;
}

enum arith quant_arith(enum quant q)
{
    return q == QUANT_W8A8 || q == QUANT_INT4 ? ARITH_INT8 : ARITH_EXACT;
}

int quant_parse(const char *word, enum quant *out, struct err *e)
{
    static const struct {
        const char *word;
        enum quant quant;
    } words[] = {{"", QUANT_NONE},
                 {"none", QUANT_NONE},
                 {"auto", QUANT_NONE},
                 {"eetq", QUANT_INT8},
                 {"int8", QUANT_INT8},
                 {"w8a8", QUANT_W8A8},
                 {"int4", QUANT_INT4},
                 {"fp8", QUANT_FP8},
                 {"gptq", QUANT_NONE},
                 {"awq", QUANT_NONE},
                 {"marlin", QUANT_NONE},
                 {"compressed-tensors", QUANT_NONE},
                 {"bitsandbytes", QUANT_NONE},
                 {"bitsandbytes-nf4", QUANT_NONE},
                 {"bitsandbytes-fp4", QUANT_NONE}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!word || strcmp(word, words[i].word) == 0) {
            *out = words[i].quant;
            return 0;
        }
    return err_set(
        e, ERR_VALIDATION,
        "--quantize %.40s: this version quantises float weights at load, to eetq (int8), "
        "w8a8, int4 or fp8, and reads weights stored as gptq, awq, fp8, compressed-tensors or "
        "bitsandbytes; other schemes are not supported",
        word);
}

const char *kv_dtype_name(enum kv_dtype t)
{
    static const char *const names[KV_N] = {"float32", "float16", "bfloat16",
                                            "int8",    "fp8",     "int4"};
    return (unsigned)t < KV_N ? names[t] : "unknown";
}

/* Names of the types in order, then vLLM's and TGI's names for fp8. */
const char *const kv_dtype_choices[] = {"auto", "float32", "float16",  "bfloat16",   "int8",
                                        "fp8",  "int4",    "fp8_e4m3", "fp8_e4m3fn", NULL};

enum kv_dtype kv_dtype_chosen(uint32_t choice)
{
    return choice > KV_N ? KV_FP8 : (enum kv_dtype)(choice - 1);
}

/* ---------------------------------------------------------------- plugins */

const struct backend_plugin *backend_plugin_load(const char *path, struct err *e)
{
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed: the driver stays loaded */
    if (!so) {
        const char *why = dlerror(); /* NOLINT(concurrency-mt-unsafe): the thread's own in glibc */
        return err_set(e, ERR_SYSTEM, "%.400s", why), NULL;
    }
    backend_plugin_fn *entry;
    *(void **)&entry = dlsym(so, BACKEND_PLUGIN_SYMBOL);
    const struct backend_plugin *p = entry ? entry() : NULL;
    if (p && p->abi == BACKEND_ABI && !strcmp(p->version, VERSION))
        return p;
    err_set(e, ERR_VALIDATION, "%.300s is not of this build (version %s); install both together",
            path, VERSION);
    dlclose(so);
    return NULL;
}

/* $BACKEND_CUDA, else backend-cuda.so beside the program or in ../lib/model-server. */
static int find_plugin(char path[PATH_MAX], struct err *e)
{
    static const char *const places[] = {"", "../lib/model-server/"};
    const char *set =
        getenv("BACKEND_CUDA"); /* NOLINT(concurrency-mt-unsafe): it is never written */
    char exe[PATH_MAX];
    if (set) {
        snprintf(path, PATH_MAX, "%s", set);
        return 0;
    }
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n < 0)
        return err_sys(e, "/proc/self/exe");
    exe[n] = '\0';
    *strrchr(exe, '/') = '\0';
    for (int i = 0; i < 2; i++)
        if (snprintf(path, PATH_MAX, "%s/%sbackend-cuda.so", exe, places[i]) < PATH_MAX &&
            access(path, F_OK) == 0)
            return 0;
    return err_set(
        e, ERR_VALIDATION,
        "there is no backend-cuda.so beside this program or in ../lib/model-server (it is "
        "built where nvcc is found)");
}

static const struct backend_ops *find_cuda(struct err *e)
{
    char path[PATH_MAX];
    const struct backend_plugin *p = NULL;
    if (find_plugin(path, e) || !(p = backend_plugin_load(path, e)) || p->available(e)) {
        err_wrap(e, "backend cuda");
        return NULL;
    }
    return p->ops;
}

const struct backend_ops *backend_find(const char *name, struct err *e)
{
    struct err quiet = ERR_INIT;
    const struct backend_ops *gpu;
    if (!strcmp(name, "cpu"))
        return &backend_cpu;
    if (!strcmp(name, "auto"))
        return (gpu = find_cuda(&quiet)) ? gpu : &backend_cpu;
    if (!strcmp(name, "cuda"))
        return find_cuda(e);
    err_set(e, ERR_VALIDATION, "backend %s: unknown; there are cpu, cuda and auto", name);
    return NULL;
}
