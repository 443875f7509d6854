/* lora_recur.h - updates of recurrent layers' matrices: see lora.h. */
#ifndef MODEL_SERVER_MODEL_LORA_LORA_RECUR_H
#define MODEL_SERVER_MODEL_LORA_LORA_RECUR_H
#include "model-server/model/lora/lora.h"

/* True if a matrix of this role belongs to a recurrent mixer of the layer. */
bool lora_is_recur(const struct decoder_spec *s, uint32_t layer, enum role r);
/* True if the layer's mixer has a matrix of this role. */
bool lora_recur_has(const struct decoder_spec *s, uint32_t layer, enum role r);
/* The site of a matrix that is one of `site` in other mixers. */
enum lora_site lora_recur_site(const struct decoder_spec *s, uint32_t layer, enum role r,
                               enum lora_site site);
/* Fills this rank's part of a pair whose site and role are set; and the inputs and outputs of the
 * whole model. */
void lora_recur_place(const struct lora_base *base, struct lora_pair *p, uint32_t *inputs,
                      uint32_t *outputs);
/* The row of B of this rank's output i of the pair. */
uint32_t lora_recur_row(const struct lora_pair *p, const struct lora_base *base, uint32_t i);
#endif
