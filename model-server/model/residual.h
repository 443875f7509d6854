/* residual.h - the residual stream: how a sublayer reads its input from it, and how its result is
 * written back.
 *
 * A layer is the same for every kind of stream (decoder.c): for each of its sublayers in turn,
 * read(), the sublayer, its sum over ranks, the norm post(), write(). A kind is one row: one stream
 * with norms before, around or after the sublayers, scaled or in parallel (residual.c); its norms
 * as the stream, or norms of the sums (residual.c); several streams that are predicted and
 * corrected (residual/altup.c); two stacks' results (residual/stacks.c); several streams that are
 * mixed (residual/mixed.c), or joined by gates (residual/gated.c); one stream that vectors scale
 * (residual/affine.c) or balance (residual/balanced.c), or of length 1 (residual/sphere.c); rows of
 * blocks of layers (residual/blended.c). One thread. */
#ifndef MODEL_SERVER_MODEL_RESIDUAL_H
#define MODEL_SERVER_MODEL_RESIDUAL_H
#include "model-server/model/decoder.h"

struct decoder_part; /* decoder_impl.h */
struct loader;

/* The sublayers of a layer, in their order. */
enum sub { SUB_MIXER, SUB_FFN, SUB_TAIL, SUBS };

/* All functions enqueue operations on the rows `p` of a step; scratch.r is the sublayer's result.
 */
struct residual_ops {
    const char *name;
    /* Weights of its own: a part of `part` bytes for each of a layer's mixer and feed-forward, and
     * with `last` one for end(), in the last stage (not with mix_spec.mean_last). 0: none. load()
     * fills a part of zeros; `layer` is NO_LAYER and `sub` SUBS for that of end(). */
    size_t part;
    bool last;
    void (*load)(struct loader *l, void *part, int layer, enum sub sub);
    void (*free)(struct decoder *d, void *part);
    /* The stream or streams of the step's embeddings. */
    int (*begin)(struct decoder *d, const struct decoder_part *p, struct err *e);
    /* Prepares for layer i a stream that the layer before did not write. NULL: nothing to do. */
    void (*enter)(struct decoder *d, uint32_t i, const struct decoder_part *p);
    /* Address of the input of a sublayer, of all rows of the step: [total][hidden]. NULL:
     * scratch.n for all. */
    const float *(*in)(const struct decoder *d, uint32_t i, enum sub sub);
    /* Computes it. NULL: enter() or the last write() did. */
    void (*read)(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p);
    /* The norm of the sublayer's result, or NULL. NULL: none has one. */
    const struct norm *(*post)(const struct decoder *d, uint32_t i, enum sub sub);
    /* Adds that result, and prepares the next input. */
    void (*write)(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p);
    /* x = what the final norm reads, of t rows. NULL: x is the stream. */
    void (*end)(struct decoder *d, uint32_t t);
};

extern const struct residual_ops residual_plain, residual_norms, residual_sums, residual_altup,
    residual_mixed, residual_gated, residual_affine, residual_sphere, residual_blended,
    residual_balanced;

/* With spec.two_stacks: the streams of both stacks after the embedding, and after layer i, with
 * which a turn ends. */
void decoder_stacks_begin(struct decoder *d, const struct decoder_part *p);
void decoder_stacks_turn(struct decoder *d, uint32_t i, const struct decoder_part *p);

/* With spec.blend_per: rows of the stream, else 0. */
uint32_t residual_blended_slots(const struct decoder_spec *s);

/* The kind of a model. */
const struct residual_ops *residual_of(const struct decoder_spec *s);
/* Load and free the parts of a layer, layer.residual, and of end(), decoder.residual_last. Errors
 * are the loader's. */
void residual_load_layer(struct loader *l, uint32_t layer);
void residual_free_layer(struct decoder *d, uint32_t layer);
void residual_load_last(struct loader *l);
void residual_free_last(struct decoder *d);
/* The norm before the first sublayer of layer i, or of the next layer that is not a cross-attention
 * layer. NULL: this stage has none, or no norm is before it. */
const struct norm *residual_first_norm(const struct decoder *d, uint32_t i);
/* enter() of a stream x whose norm is n. */
void residual_enter(struct decoder *d, uint32_t i, const struct decoder_part *p);
/* What one stage of a pipeline gives to the next: rows of *width numbers for each token. */
float *residual_rows(const struct decoder *d, uint32_t *width);
#endif
