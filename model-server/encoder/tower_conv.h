/* tower_conv.h - private to tower*.c: towers of convolutions (conv_spec.h).
 *
 * One crop at a time goes through the steps, in parts of some rows of a step's result. A part
 * depends on no other part of the step. Products, norms and attention are operations of the
 * backend. Windows, depthwise convolutions and means are computed by the host's threads; if the
 * device has memory of its own, their grids are copied there and back. Every rank computes
 * everything. */
#ifndef MODEL_SERVER_ENCODER_TOWER_CONV_H
#define MODEL_SERVER_ENCODER_TOWER_CONV_H
#include "model-server/encoder/tower_impl.h"

/* True if the device's memory is the host's. */
static inline bool tower_conv_shares(const struct tower *t) { return !t->d.ops->comm_open; }
/* True if the host computes a part of the step. */
static inline bool tower_conv_on_host(const struct conv_step *c)
{
    return c->kind == CONV_DENSE ? c->size > 1 || c->stride > 1
                                 : c->kind != CONV_NORM && c->kind != CONV_ATTEND;
}

/* True if it reads a second grid on the host. */
static inline bool tower_conv_reads_two(const struct conv_step *c)
{
    return c->kind == CONV_JOIN || c->kind == CONV_APPEND || c->kind == CONV_TIMES;
}

enum { TOWER_CONV_BLOCK = 16 }; /* of the cache */
/* Rows of a sequence of CONV_ATTEND, whose keys are in grid `with`; the rows of the cache that it
 * takes, which begin with a block. */
static inline uint32_t tower_conv_sequence(const struct conv_step *c, struct conv_shape with)
{
    return c->size ? (uint32_t)c->size * c->size : (uint32_t)conv_rows(with);
}
static inline uint32_t tower_conv_cached(uint32_t rows)
{
    return (rows + TOWER_CONV_BLOCK - 1) / TOWER_CONV_BLOCK * TOWER_CONV_BLOCK;
}

/* Loads and frees the weights of the steps. */
void tower_conv_load(struct loader *l, struct tower *t);
void tower_conv_free_weights(struct tower *t);

/* Working memory for a picture of height x width; bytes that it takes. */
int tower_conv_reserve(struct tower *t, uint32_t height, uint32_t width, struct err *e);
uint64_t tower_conv_bytes(const struct tower *t, uint32_t height, uint32_t width);
void tower_conv_free(struct tower *t);

/* Begins with a crop. Then tower_conv_on() continues with about `most` multiply-adds, of which it
 * did *done; *over after the last step. */
int tower_conv_begin(struct tower *t, const struct tower_image *image, uint32_t crop,
                     struct err *e);
int tower_conv_on(struct tower *t, uint64_t most, uint64_t *done, bool *over, struct err *e);
/* Projects the rows of the result to t->features[0]. A step of its own. */
int tower_conv_project(struct tower *t, struct err *e);
#endif
