/* stored_method.h - a quantization_config by its method (stored_method.c), for stored_config.c. */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_QUANT_STORED_METHOD_H
#define MODEL_SERVER_MODEL_CHECKPOINT_QUANT_STORED_METHOD_H
#include "model-server/model/checkpoint/quant/stored.h"
#include "model-server/model/config/config.h"

/* Fills `s` from the object `q`; `def`: the method if `q` names none. An unsupported method or
 * parameter is an error of `c`. */
void stored_method_read(struct config *c, const cJSON *q, const char *def, struct stored *s);
#endif
