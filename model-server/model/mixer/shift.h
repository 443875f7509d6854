/* shift.h - the token shift of RWKV (arXiv 2503.14456): mixes of each token's row and that of the
 * token before it, which is 0 for the first one. Sequences carry their last row in a cell. Every
 * rank has whole rows. */
#ifndef MODEL_SERVER_MODEL_MIXER_SHIFT_H
#define MODEL_SERVER_MODEL_MIXER_SHIFT_H
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"

struct token_shift {
    struct conv conv;
    uint64_t at; /* in a cell */
};
/* What a mix takes of the token before, a vector [hidden]; it takes the rest of the token itself.
 * `role`: its whole name. `row`: its place in W_SHIFT_ALL [n][hidden], if the checkpoint has that
 * tensor instead. */
struct mix_name {
    enum role role;
    uint32_t row;
};
/* n mixes. One alone is never in W_SHIFT_ALL. */
void token_shift_load(struct loader *l, struct token_shift *y, int layer,
                      const struct mix_name *names, uint32_t n);
void token_shift_free(struct decoder *d, struct token_shift *y);
/* out [n][tokens][hidden] from in [tokens][hidden], of all rows of a step. */
void token_shift_run(struct decoder *d, const struct token_shift *y, float *out, const float *in);
#endif
