/* lora_inside.h - the tensors of an adapter inside a checkpoint under PEFT's names: Jina Embeddings
 * 3 (arXiv 2409.10173), whose tensors have all adapters, one behind the other. */
#ifndef MODEL_SERVER_MODEL_LORA_LORA_INSIDE_H
#define MODEL_SERVER_MODEL_LORA_LORA_INSIDE_H
#include "model-server/model/lora/lora.h"

/* Fills l->file with the pairs of adapter `index`; *alpha as in lora_gguf.h. ERR_VALIDATION names
 * the file and the key or tensor. After a failure lora_close() frees what was made. */
int lora_inside_read(struct lora_adapter *l, const char *dir, uint32_t index,
                     const struct lora_base *base, double *alpha, struct err *e);
/* Frees what lora_inside_read() made beside l->file and l->copies. */
void lora_inside_close(struct lora_adapter *l);
#endif
