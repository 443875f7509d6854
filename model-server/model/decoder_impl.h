/* decoder_impl.h - shared by decoder.c, decoder/encode.c, decoder/walk.c and draft heads
 * (draft/). */
#ifndef MODEL_SERVER_MODEL_DECODER_IMPL_H
#define MODEL_SERVER_MODEL_DECODER_IMPL_H
#include "model-server/model/decoder.h"
#include "model-server/model/residual.h"

/* Rows [first, first + n) of the `total` of a step. `first` is a multiple of DECODER_PART_ROWS,
 * so that rows of any width start at an alignment for vector loads. */
struct decoder_part {
    uint32_t first, n, total;
};
enum { DECODER_PART_ROWS = 16 };
/* Row `p->first` of an area of the scratch memory. */
static inline float *decoder_rows(const struct decoder *d, float *area,
                                  const struct decoder_part *p)
{
    return area + (size_t)p->first * d->spec.hidden;
}

/* Loads what precedes the layers; the size of the embedding table. */
struct amount decoder_load_first(struct loader *l);
/* Loads what follows them; `embed`: that size. */
void decoder_load_last(struct loader *l, struct amount embed);
/* Loads what precedes and what follows the layers, as far as this stage has them. */
void decoder_load_ends(struct loader *l);

/* ERR_VALIDATION: an id outside the vocabulary, or a position beyond the table of positions. */
int decoder_check(const struct decoder *d, const struct ragged *b, struct err *e);
/* How many of `tokens` tokens one pass processes. */
uint32_t decoder_pass_of(const struct decoder *d, uint32_t tokens);
/* Scratch memory for one pass of any size. */
int decoder_reserve_pass(struct decoder *d, uint32_t max_tokens, uint32_t max_out, struct err *e);
/* Enqueues x = the embedding of rows, with what replaces them, positions and the norm. */
int decoder_embed(struct decoder *d, const struct decoder_part *p, struct err *e);
/* Enqueues the input of layer i, if no layer before it did. */
void decoder_enter_layer(struct decoder *d, uint32_t i, const struct decoder_part *p);
/* In, out: n is the norm of x (with NORM_SUM: only x), for layer i and for the next one. */
int decoder_layer(struct decoder *d, uint32_t i, uint32_t t, struct err *e);
/* Enqueues the logits of n rows of output of one pass, after those of `before` rows of the same
 * step: this rank's slice. few: of decoder_run_layers(). Only on the last stage. Then those of all
 * n_out rows: from the last stage to all, and from all ranks of a stage. */
void decoder_head_rows(struct decoder *d, uint32_t before, uint32_t n, bool few);
int decoder_collect_logits(struct decoder *d, uint32_t n_out, struct err *e);
/* Both, of a step of one pass. */
int decoder_head(struct decoder *d, uint32_t n_out, struct err *e);
/* Layer i attends to rows of images or of an encoder: it is skipped if no row of the step does. */
bool decoder_is_cross(const struct decoder *d, uint32_t i);
/* Before a step: which of its rows see pictures. */
int decoder_cross_begin(struct decoder *d, const struct ragged *b, struct err *e);
/* Such a layer, within the step `b`. In: x. Out: x; n is undefined, or if every row of the step
 * attends to something, its norm for the next layer. */
int decoder_cross_layer(struct decoder *d, uint32_t i, const struct ragged *b, struct err *e);
/* Which layer of crossing.kv layer i reads. */
uint32_t decoder_cross_at(const struct decoder *d, uint32_t i);
void decoder_cross_free(struct decoder *d);
/* Enqueues the layers of this stage, from the embedding on. few: only if decoder_ends_few(); then
 * scratch.out has the stream of the rows of output in the end, and x, n and r are undefined. */
int decoder_run_layers(struct decoder *d, const struct ragged *b, bool few, struct err *e);
/* One sublayer of layer i: a part of rest(). */
int decoder_layer_sub(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p,
                      struct err *e);
/* The last feed-forward, which relates no rows, may run on the rows of output alone, which may be
 * none; the last layer i in this way (decoder/few.c). */
bool decoder_ends_few(const struct decoder *d, const struct ragged *b);
int decoder_layer_few(struct decoder *d, uint32_t i, const struct ragged *b, struct err *e);
/* Layer i in two parts. In: n is the norm of x. First store() of every row to which another row
 * attends. Then rest(): x has both branches added and n is its norm for the next layer. With
 * NORM_SUM n is not used. */
int decoder_layer_store(struct decoder *d, uint32_t i, const struct decoder_part *p, struct err *e);
int decoder_layer_rest(struct decoder *d, uint32_t i, const struct decoder_part *p, struct err *e);

/* Ends the step that was begun, and begins the step `b`. */
int decoder_next_step(struct decoder *d, const struct ragged *b, struct err *e);
/* Uploads rotations and factors of q for the step's positions. */
int decoder_upload_positions(struct decoder *d, const struct ragged *b, struct err *e);
/* Uploads b->given side by side: first the embeddings, then the rows of each layer. */
int decoder_upload_given(struct decoder *d, const struct ragged *b, struct err *e);
/* After it: the step with the ids for the lookup of per-layer embeddings: see spec.given_id. The
 * main embedding of such a token is its given row. */
struct ragged decoder_with_ids(struct decoder *d, const struct ragged *b);
/* Enqueues x = embeddings of the step's ids, the same on all ranks. */
int decoder_embed_rows(struct decoder *d, float *x, uint32_t t, struct err *e);
/* Enqueues the logits of scratch.out, normalised, of all ranks' slices. */
int decoder_logits(struct decoder *d, const struct weight *head, const float *bias, uint32_t n_out,
                   struct err *e);
/* Enqueues the logits of n rows after the last norm, which are not in scratch.r, of all ranks'
 * slices. */
int decoder_logits_of(struct decoder *d, const float *rows, uint32_t n, struct err *e);
/* After step_end(): copies the logits to the host, slices side by side. */
int decoder_fetch_logits(struct decoder *d, uint32_t n_out, float *logits, struct err *e);
#endif
