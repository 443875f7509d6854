/* static_rows.h - the table of a model without layers (model2vec): a row for each token, of
 * `embeddings`; or where `mapping` has a number for each token, that row of it; times its
 * `weights`, if there are any. One thread. */
#ifndef MODEL_SERVER_MODEL_STATIC_ROWS_H
#define MODEL_SERVER_MODEL_STATIC_ROWS_H
#include "model-server/model/checkpoint/checkpoint.h"

/* Its tokens and its width, of the folder `dir`. ERR_VALIDATION if the tensors do not fit. */
int static_rows_sizes(const char *dir, uint32_t *tokens, uint32_t *width, struct err *e);
/* The table [tokens][width]; the caller frees it. NULL: an error. */
float *static_rows_load(const struct checkpoint *c, struct err *e);
#endif
