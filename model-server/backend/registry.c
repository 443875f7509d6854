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

int quant_parse(const char *word, enum quant *out, struct err *e)
{
    static const struct {
        const char *word;
        enum quant quant;
    } words[] = {{"", QUANT_NONE},     {"none", QUANT_NONE}, {"auto", QUANT_NONE},
                 {"eetq", QUANT_INT8}, {"int8", QUANT_INT8}, {"w8a8", QUANT_W8A8},
                 {"int4", QUANT_INT4}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!word || strcmp(word, words[i].word) == 0) {
            *out = words[i].quant;
            return 0;
        }
    return err_set(
        e, ERR_VALIDATION,
        "--quantize %.40s: this version quantises float weights at load, to eetq (int8), "
        "w8a8 or int4; other schemes and weights stored quantised are not supported",
        word);
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
