/* gguf_mix.h - the types of the tensors of a GGUF file, by the names of llama.cpp's llama-quantize.
 *
 * "Q4_K_M" is Q4_K, with Q6_K for half of the value and down matrices and for the head. The rules
 * are those of llama_tensor_get_type (llama.cpp, src/llama-quant.cpp), by role. */
#ifndef MODEL_SERVER_QUANTIZE_GGUF_MIX_H
#define MODEL_SERVER_QUANTIZE_GGUF_MIX_H
#include "common/err.h"
#include "common/gguf/gguf.h"
#include <stdbool.h>

struct gguf_mix {
    const char *name;        /* "Q4_K_M" */
    uint32_t file_type;      /* general.file_type */
    enum gguf_packing usual; /* type of tensors without a rule */
};
/* Finds a mix by name, ignoring case. NULL: ERR_VALIDATION lists the known ones. */
const struct gguf_mix *gguf_mix_find(const char *name, struct err *e);

/* Description of a tensor. */
struct gguf_place {
    const char *name;
    uint64_t cols;
    uint32_t layer, layers;        /* index among, and number of, the layers with such a tensor */
    uint32_t experts, heads_of_kv; /* experts: 0 if dense; query heads per key-value head */
    bool tied;                     /* the model has no output.weight */
    bool weighted;                 /* an importance matrix is used */
};
/* Returns the type of a quantised matrix. If its columns are not a multiple of the block length, it
 * is llama.cpp's fallback type. */
enum gguf_packing gguf_mix_type(const struct gguf_mix *m, const struct gguf_place *p);
/* True if a tensor of this name and number of dimensions is quantised. */
bool gguf_mix_packs(const char *name, int n_dims);
#endif
