/* lora_head.h - an adapter's update of the matrix behind the last layer, whose rows are a model's
 * results: that of retrievers of page images (common/model/visual_form.h). The host multiplies it,
 * as it does the matrix itself (text_head.h), in fp32. */
#ifndef MODEL_SERVER_MODEL_LORA_LORA_HEAD_H
#define MODEL_SERVER_MODEL_LORA_LORA_HEAD_H
#include "model-server/model/checkpoint/tensor_file.h"

struct lora_head {
    float *a, *b; /* [rank][inputs]; [outputs][rank], scaled. NULL: there is no update */
    uint32_t rank, inputs, outputs;
};
/* Reads A [rank, inputs] and B [outputs, rank] of F32, F16 or BF16, both checked. Free with
 * lora_head_free() in either case. */
int lora_head_read(struct lora_head *h, const struct tensor *a, const struct tensor *b, float scale,
                   struct err *e);
void lora_head_free(struct lora_head *h);
/* out [n][outputs] += B A x for each row of x [n][inputs]. A row's result depends on it alone. */
void lora_head_add(const struct lora_head *h, const float *x, uint32_t n, float *out);
#endif
