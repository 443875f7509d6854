/* stage.h - pipeline parallelism: which layers a rank holds.
 *
 * Stages hold consecutive layers (GPipe, arXiv 1811.06965); the first stage also holds the
 * embedding, the last one the final norm and the head. Rows pass from stage to stage. The last
 * stage sends the logits to all others, so that every rank has the logits of a step.
 * docs/decisions/parallelism.md. */
#ifndef MODEL_SERVER_MODEL_STAGE_H
#define MODEL_SERVER_MODEL_STAGE_H
#include "common/err.h"
#include "model-server/model/spec/decoder_spec.h"

struct decoder; /* decoder.h */
struct ragged;

struct stage {
    uint32_t first, n; /* layers [first, first + n) */
    bool begins, ends; /* it has the embedding; it has the head */
};

/* Bytes of the parts of stages. */
struct stage_sizes {
    uint64_t layer[SPEC_MAX_LAYERS];
    uint64_t embed, head;
};

/* Stage `rank` of `world`, divided such that the largest stage is minimal. A layer that reads
 * another layer's keys, or shares its weights, is in the same stage. ERR_VALIDATION: no such
 * division exists. */
int stage_cut(const struct decoder_spec *s, const struct stage_sizes *z, int rank, int world,
              struct stage *out, struct err *e);

/* Checks that all stages have divided alike, because their files are the same, and sets
 * decoder.smallest_pass and decoder.link, which the caller closes. Collective over decoder.stages.
 */
int stage_agree(struct decoder *d, struct err *e);

/* Within a step, with several stages: receives t rows of the stream or streams from the previous
 * stage, sends them to the next; sends `n` floats from the last stage to all others. */
int stage_take_rows(struct decoder *d, uint32_t t, struct err *e);
int stage_give_rows(struct decoder *d, uint32_t t, struct err *e);
int stage_share(struct decoder *d, float *x, size_t n, struct err *e);
/* The device's memory is not the host's, and there is no link: rows and logits pass through
 * scratch.host. */
bool stage_copies(const struct decoder *d);
/* Most tokens of a step in one pass, so that stages work concurrently on different passes. */
uint32_t stage_pass_tokens(const struct decoder *d, uint32_t tokens, uint32_t most);
#endif
