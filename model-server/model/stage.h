/* stage.h - pipeline parallelism: which layers a rank holds.
 *
 * Layers follow each other over ranks (GPipe, arXiv 1811.06965): a stage holds some of them, the
 * first stage the embedding as well, the last one the final norm and the head. Rows go from stage
 * to stage; what comes of them goes from the last stage to all others, so that every rank has the
 * logits of a step. docs/decisions/parallelism.md. */
#ifndef MODEL_SERVER_MODEL_STAGE_H
#define MODEL_SERVER_MODEL_STAGE_H
#include "common/err.h"
#include "model-server/model/decoder_spec.h"

struct decoder; /* decoder.h */
struct ragged;

struct stage {
    uint32_t first, n; /* layers [first, first + n) */
    bool begins, ends; /* it has the embedding; the head */
};

/* Bytes of what stages hold. */
struct stage_sizes {
    uint64_t layer[SPEC_MAX_LAYERS];
    uint64_t embed, head;
};

/* Stage `rank` of `world`, cut so that the largest stage is as small as can be. A layer that reads
 * another one's keys, or has its weights, is in the same stage. ERR_VALIDATION: there is no such
 * cut. */
int stage_cut(const struct decoder_spec *s, const struct stage_sizes *z, int rank, int world,
              struct stage *out, struct err *e);

/* All stages have cut alike: their files are the same. Collective over decoder.stages. */
int stage_agree(const struct decoder *d, struct err *e);

/* Within a step, of a decoder with several stages. Rows [t, hidden] of the stream, from the stage
 * before and to the one behind; `n` floats from the last stage to all others. */
int stage_take_rows(struct decoder *d, float *x, uint32_t t, struct err *e);
int stage_give_rows(struct decoder *d, const float *x, uint32_t t, struct err *e);
int stage_share(struct decoder *d, float *x, size_t n, struct err *e);
/* Most tokens of a step that are computed together, so that stages work at the same time on what
 * precedes and what follows. */
uint32_t stage_pass_tokens(const struct decoder *d, uint32_t tokens, uint32_t most);
#endif
