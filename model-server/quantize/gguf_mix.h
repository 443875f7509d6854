/* gguf_mix.h - which type each tensor of a GGUF file has: the types that llama.cpp's llama-quantize
 * gives a name to. "Q4_K_M" is Q4_K with Q6_K for half of the value and down matrices, and for the
 * head; the rules are those of llama_tensor_get_type (llama.cpp, src/llama-quant.cpp), by role. */
#ifndef MODEL_SERVER_QUANTIZE_GGUF_MIX_H
#define MODEL_SERVER_QUANTIZE_GGUF_MIX_H
#include "common/err.h"
#include "common/gguf/gguf.h"
#include <stdbool.h>

struct gguf_mix {
    const char *name;        /* "Q4_K_M" */
    uint32_t file_type;      /* general.file_type */
    enum gguf_packing usual; /* of what has no rule */
};
/* NULL and ERR_VALIDATION, with the known ones. Any case. */
const struct gguf_mix *gguf_mix_find(const char *name, struct err *e);

/* What a tensor is, by its name in GGUF. */
struct gguf_place {
    const char *name;
    uint64_t cols;
    uint32_t layer, layers;        /* of the layers that have such a tensor: which one, how many */
    uint32_t experts, heads_of_kv; /* heads that share a key and a value; experts: 0 none */
    bool tied;                     /* there is no output.weight */
    bool weighted;                 /* there is an importance matrix */
};
/* Of a matrix that is to be packed. Columns that the type's blocks do not divide get the type that
 * llama.cpp falls back to. */
enum gguf_packing gguf_mix_type(const struct gguf_mix *m, const struct gguf_place *p);
/* Is a tensor of this name and so many dimensions packed at all? */
bool gguf_mix_packs(const char *name, int n_dims);
#endif
