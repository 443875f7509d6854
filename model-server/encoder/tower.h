/* tower.h - a vision tower on the text model's device: pixels to rows of embeddings.
 *
 * Crops of all pictures of a call go through the transformer side by side, each seeing itself
 * alone, in passes of bounded size. As with texts, what a picture becomes does not depend on its
 * company. Layers are split over ranks as the text model's are, where their number divides the
 * heads; else, and for the small matrices before and behind them, every rank computes all of it.
 * Every rank gets the same calls. One thread. */
#ifndef MODEL_SERVER_ENCODER_TOWER_H
#define MODEL_SERVER_ENCODER_TOWER_H
#include "common/vision/vision.h"
#include "model-server/encoder/encoder_spec.h"

struct tower;
struct decoder; /* model/decoder.h */

/* Of the model in the folder `dir`, whose text model is `text`. *out is NULL, without an error,
 * where the model shows no pictures or the tower is of a kind that is not known. The caller owns
 * it; `text` must outlive it. */
int tower_load(const char *dir, const struct decoder *text, struct tower **out, struct err *e);
/* Random weights of this shape, as `names` are called; for timing. */
struct tower *tower_random(const struct encoder_spec *spec, const struct arch *names,
                           const struct decoder *text, struct err *e);
void tower_free(struct tower *t); /* NULL is fine */

/* A picture that is to be encoded. */
struct tower_image {
    const struct vision_plan *plan;
    const float *pixels; /* of all its crops, as pixels_make() writes them */
    enum vision_layout layout;
    /* [plan->n_features][tower_row()]: of each feature the row that is its embedding, then the rows
     * that are added behind the first layers. */
    float *out;
};
/* ERR_VALIDATION: a plan that does not go with this tower. */
int tower_encode(struct tower *t, const struct tower_image *images, uint32_t n, struct err *e);
/* The same in parts, between which the text model may work: begin, go on while it is busy. `images`
 * and all that they name stay valid until then. An error ends the work. */
int tower_begin(struct tower *t, const struct tower_image *images, uint32_t n, struct err *e);
bool tower_busy(const struct tower *t);
/* For about `most` multiplications and additions; *done: how many it were. A part of a layer is
 * done at least. The features have the same bits in whatever parts they are computed. */
#define TOWER_ALL UINT64_MAX
int tower_go_on(struct tower *t, uint64_t most, uint64_t *done, struct err *e);
void tower_stop(struct tower *t); /* what was begun is forgotten */
/* The same fault, before. */
int tower_check(const struct tower *t, const struct vision_plan *plan, struct err *e);
uint32_t tower_row(const struct tower *t); /* floats of a feature: width * (1 + levels) */
/* Of towers whose features layers of the text model attend to: the embedding [width] of the token
 * that stands for a picture, and features of the largest picture. NULL and 0 of others. */
const float *tower_token(const struct tower *t);
uint32_t tower_most_features(const struct tower *t);
/* Tokens of the transformer that a picture comes to: what encoding it costs. */
uint32_t tower_tokens(const struct tower *t, const struct vision_plan *plan);
uint64_t tower_weight_bytes(const struct tower *t); /* on this rank */
/* What tower_reserve() takes, of which nothing is taken. */
uint64_t tower_reserve_bytes(const struct tower *t, uint32_t features);
/* Working memory for pictures of up to so many features together, ahead of them. A picture that is
 * larger than what goes through at once takes more when it comes. */
int tower_reserve(struct tower *t, uint32_t features, struct err *e);
#endif
