/* random_weights.h - tensors of a model that was never trained: for timing a shape without its
 * checkpoint. Deterministic: a value depends on the tensor's name and the element's place alone. */
#ifndef MODEL_SERVER_MODEL_RANDOM_WEIGHTS_H
#define MODEL_SERVER_MODEL_RANDOM_WEIGHTS_H
#include "model-server/backend/backend.h"

/* `n` elements in bf16, uniform in mean +- spread, made by the device's host threads. NULL: no
 * memory. The caller frees. */
void *random_tensor(const struct backend_ops *ops, struct device *dev, const char *name, size_t n,
                    float mean, float spread);
#endif
