/* shift.h - the token shift of RWKV (arXiv 2503.14456): mixes of each token's row and that of the
 * token before it, which is 0 for the first one. Sequences carry their last row in a cell. Every
 * rank has whole rows. */
#ifndef MODEL_SERVER_MODEL_MIXER_SHIFT_H
#define MODEL_SERVER_MODEL_MIXER_SHIFT_H
#include "model-server/model/decoder.h"
#include "model-server/model/loader.h"

struct token_shift {
    struct conv conv;
    uint64_t at; /* in a cell */
};
/* One mix for each of n roles, whole names of vectors [hidden]: what the mix takes of the token
 * before; it takes the rest of the token itself. */
void token_shift_load(struct loader *l, struct token_shift *y, int layer, const enum role *roles,
                      uint32_t n);
void token_shift_free(struct decoder *d, struct token_shift *y);
/* out [n][tokens][hidden] from in [tokens][hidden], of all rows of a step. */
void token_shift_run(struct decoder *d, const struct token_shift *y, float *out, const float *in);
#endif
