/* lora_gguf.h - the tensors of llama.cpp's adapters (convert_lora_to_gguf.py) under PEFT's names.
 */
#ifndef MODEL_SERVER_MODEL_LORA_LORA_GGUF_H
#define MODEL_SERVER_MODEL_LORA_LORA_GGUF_H
#include "model-server/model/lora/lora.h"

/* Fills l->file with the pairs of the file; rows of B have the family's order. *alpha: by which a
 * pair is multiplied, divided by its rank; 0: by 1. ERR_VALIDATION names the file and the key or
 * tensor. After a failure lora_close() frees what was made. */
int lora_gguf_open(struct lora_adapter *l, const char *path, const struct lora_base *base,
                   double *alpha, struct err *e);
/* Frees what lora_gguf_open() made beside l->file. */
void lora_gguf_close(struct lora_adapter *l);
#endif
