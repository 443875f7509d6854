/* random_weights.h - tensors of a model that was never trained: for timing a shape without its
 * checkpoint. Deterministic: a value depends on the tensor's name and the element's place alone. A
 * backend that can makes them itself: see makes_weights. */
#ifndef MODEL_SERVER_MODEL_RANDOM_WEIGHTS_H
#define MODEL_SERVER_MODEL_RANDOM_WEIGHTS_H
#include "model-server/backend/backend.h"
#include "model-server/backend/random_tensor.h"

/* The tensor of this name. */
struct random_tensor random_tensor(const char *name, float mean, float spread);
/* Its first `n` elements in bf16, made by the device's host threads. NULL: no memory. The caller
 * frees. */
void *random_data(const struct backend_ops *ops, struct device *dev, struct random_tensor t,
                  size_t n);
#endif
