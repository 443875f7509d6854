/* layout.h - storage layouts of quantised matrices in safetensors folders, with their entry in
 * config.json. One row each:
 *   gptq  qweight, qzeros, scales, g_idx, as AutoGPTQ wrote them first (version 1: zero points less
 *         one): read by transformers, vLLM, GPTQModel
 *   awq   qweight, qzeros, scales of AutoAWQ's "gemm" version
 *   int8  compressed-tensors' int-quantized: weight (I8) and weight_scale, with activations rounded
 *         to 8 bits a token
 *   pack  compressed-tensors' pack-quantized: weight_packed, weight_scale, weight_shape */
#ifndef MODEL_SERVER_QUANTIZE_LAYOUT_H
#define MODEL_SERVER_QUANTIZE_LAYOUT_H
#include "model-server/quantize/grid.h"
#include "model-server/quantize/out.h"
#include <cjson/cJSON.h>

enum { LAYOUT_TENSORS = 4 };
/* Parameters shared by all matrices of a run. */
struct layout_kind {
    struct grid_kind grid;
    uint32_t group; /* columns per grid; 0: a whole row */
    bool desc_act;  /* groups of columns that are not beside each other */
    double damp;
    const char *dtype; /* safetensors type of the other tensors: "F16" ... */
};
struct layout {
    const char *name;
    uint32_t bits; /* bit set: bit b is set if codes of b bits can be stored */
    bool symmetric_only;
    /* NULL: a matrix of this shape can be stored; otherwise the violated requirement. */
    const char *(*misfit)(const struct layout_kind *k, uint64_t rows, uint64_t cols);
    /* Declares the tensors of module `module`; first[]: their indices. */
    int (*declare)(struct out *o, const struct layout_kind *k, const char *module, uint64_t rows,
                   uint64_t cols, int64_t first[LAYOUT_TENSORS], struct err *e);
    int (*write)(const struct out *o, const int64_t first[LAYOUT_TENSORS],
                 const struct grid_matrix *m, struct err *e);
    /* Returns quantization_config. `kept`: names of modules that are not quantised; `made`: names
     * within a layer of those that are. */
    cJSON *(*config)(const struct layout_kind *k, const cJSON *kept, const cJSON *made);
};
extern const struct layout layout_gptq, layout_awq, layout_int8, layout_pack;
#endif
