/* tower.h - a vision tower on the text model's device: pixels become rows of embeddings.
 *
 * Crops of all pictures of a call go through the transformer together, in passes of bounded size. A
 * crop attends to itself only, so the features of a picture do not depend on other pictures. Layers
 * are split over ranks as those of the text model, if their number divides the heads. Otherwise,
 * and for the small matrices before and after the layers, every rank computes everything. All ranks
 * make the same calls. Single-threaded. */
#ifndef MODEL_SERVER_ENCODER_TOWER_H
#define MODEL_SERVER_ENCODER_TOWER_H
#include "common/vision/vision.h"
#include "model-server/encoder/encoder_spec.h"

struct tower;
struct decoder; /* model/decoder.h */

/* Loads the tower of the model in the folder `dir`, whose text model is `text`. *out is NULL,
 * without an error, if the model takes no pictures or its tower is unknown. The caller owns *out;
 * `text` must outlive it. -1: a file cannot be read or is invalid, an unsupported value, or out of
 * memory. */
int tower_load(const char *dir, const struct decoder *text, struct tower **out, struct err *e);
/* A tower of this shape with random weights, for benchmarks. NULL: an error. */
struct tower *tower_random(const struct encoder_spec *spec, const struct arch *names,
                           const struct decoder *text, struct err *e);
void tower_free(struct tower *t); /* NULL is allowed */

/* A picture to encode. */
struct tower_image {
    const struct vision_plan *plan;
    const float *pixels; /* of all its crops, as pixels_make() writes them */
    enum vision_layout layout;
    /* [plan->n_features][tower_row()], in host memory. Of each feature: its embedding, then the
     * rows that are added after the first layers of the text model. */
    float *out;
};
/* Encodes n pictures. ERR_VALIDATION: a plan that does not match this tower. */
int tower_encode(struct tower *t, const struct tower_image *images, uint32_t n, struct err *e);
/* Starts to encode pictures, which tower_go_on() does in parts, between which the text model may
 * run. `images` and all that they point to must stay valid until tower_busy() is false.
 * ERR_VALIDATION: as tower_encode(). An error ends the work. */
int tower_begin(struct tower *t, const struct tower_image *images, uint32_t n, struct err *e);
bool tower_busy(const struct tower *t);
/* Continues with about `most` multiply-adds of all ranks; *done: their number. At least one part of
 * a layer is computed. The bits do not depend on the parts. */
#define TOWER_ALL UINT64_MAX
int tower_go_on(struct tower *t, uint64_t most, uint64_t *done, struct err *e);
void tower_stop(struct tower *t); /* drops the work that was begun */
/* ERR_VALIDATION if the plan does not match this tower. */
int tower_check(const struct tower *t, const struct vision_plan *plan, struct err *e);
uint32_t tower_row(const struct tower *t); /* floats of a feature: width * (1 + levels) */
/* For towers to whose features layers of the text model attend: the embedding [width] of the
 * picture token, and the number of features of the largest picture. Otherwise NULL and 0. */
const float *tower_token(const struct tower *t);
uint32_t tower_most_features(const struct tower *t);
/* Tokens that a picture has in the transformer: the cost of encoding it. */
uint32_t tower_tokens(const struct tower *t, const struct vision_plan *plan);
uint64_t tower_weight_bytes(const struct tower *t); /* on this rank */
/* Bytes that tower_reserve() would allocate. */
uint64_t tower_reserve_bytes(const struct tower *t, uint32_t features);
/* Allocates working memory for pictures of up to `features` features in total. A larger picture
 * allocates more when it is encoded. ERR_SYSTEM: out of memory. */
int tower_reserve(struct tower *t, uint32_t features, struct err *e);
#endif
