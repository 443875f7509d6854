/* lora_place.h - where a pair lies: in the model's matrix, and on this rank. See lora.h.
 *
 * Each kind of sublayer has a row of two functions. Those of recurrent mixers are in
 * lora_recur.h. */
#ifndef MODEL_SERVER_MODEL_LORA_LORA_PLACE_H
#define MODEL_SERVER_MODEL_LORA_LORA_PLACE_H
#include "model-server/model/lora/lora.h"

bool lora_is_latent(const struct lora_base *base, uint32_t layer);   /* latent attention */
bool lora_has_entries(const struct lora_base *base, uint32_t layer); /* entries beside a window */
bool lora_is_mlp(enum role r);                                       /* a dense or shared MLP */

/* Fills this rank's part of a pair whose layer, site and role are set and whose other fields are
 * zero. Returns the inputs and outputs of the whole model's matrix. */
void lora_place(const struct lora_base *base, struct lora_pair *p, uint32_t *inputs,
                uint32_t *outputs);
/* The row of B of this rank's output i < p->n. */
uint32_t lora_row_of_b(const struct lora_pair *p, const struct lora_base *base, uint32_t i);
#endif
