/* layout.h - how a quantised matrix lies in a folder of safetensors, and what config.json says of
 * it. A row each:
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
/* What is the same for all matrices of a run. */
struct layout_kind {
    struct grid_kind grid;
    uint32_t group; /* columns; 0: a row */
    bool act_order;
    double damp;
    const char *dtype; /* of safetensors, "F16" ...: of what is not quantised */
};
struct layout {
    const char *name;
    uint32_t bits; /* a set: bit b is set where codes of b bits can be stored */
    bool symmetric_only;
    /* NULL: such a matrix can be stored; else what it has to be. */
    const char *(*misfit)(const struct layout_kind *k, uint64_t rows, uint64_t cols);
    /* Declares the tensors of module `name`; first[]: their numbers. */
    int (*declare)(struct out *o, const struct layout_kind *k, const char *module, uint64_t rows,
                   uint64_t cols, int64_t first[LAYOUT_TENSORS], struct err *e);
    int (*write)(const struct out *o, const int64_t first[LAYOUT_TENSORS],
                 const struct grid_matrix *m, struct err *e);
    /* quantization_config. Arrays of names: `kept`, modules that stay as they are; `made`, those
     * that do not, as they are called within a layer. */
    cJSON *(*config)(const struct layout_kind *k, const cJSON *kept, const cJSON *made);
};
extern const struct layout layout_gptq, layout_awq, layout_int8, layout_pack;
#endif
