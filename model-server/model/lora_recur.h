/* lora_recur.h - where updates of recurrent layers' matrices lie: see lora.h. */
#ifndef MODEL_SERVER_MODEL_LORA_RECUR_H
#define MODEL_SERVER_MODEL_LORA_RECUR_H
#include "model-server/model/lora.h"

/* The pair is of a recurrent mixer's matrix. */
bool lora_is_recur(enum role r);
/* The layer's mixer has a matrix of this role. */
bool lora_recur_has(const struct decoder_spec *s, uint32_t layer, enum role r);
/* Fills what this rank holds of a pair whose site and role are known; what the whole model has:
 * inputs and outputs. */
void lora_recur_place(const struct lora_base *base, struct lora_pair *p, uint32_t *inputs,
                      uint32_t *outputs);
/* The row of B that becomes this rank's output i of the pair. */
uint32_t lora_recur_row(const struct lora_pair *p, const struct lora_base *base, uint32_t i);
#endif
